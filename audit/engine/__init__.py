"""The engine: chunks of examples become evidence, evidence becomes records. It knows no sink."""
