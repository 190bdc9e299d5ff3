"""Input Fisher information: how far the output distribution can move per unit of input, without an attack.

F(x) = J^T S J with J = d logits / d x and S = diag(p) - p p^T at temperature T; KL(p(x) || p(x + e)) = e^T F e / 2 + o(|e|^2).
`spectrum`, `temperature` and `sampling` are numpy; `exact`, `margin` and `queries` ask a model.
"""
