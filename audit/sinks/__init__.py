"""Where a result goes: MLflow, HTML, PDF. Sinks read a result and never need the model, torch or the data."""
