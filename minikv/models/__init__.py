"""From a name to a bound Hugging Face model."""

from minikv.config import require_transformers

require_transformers()  # before anything of it is imported: an old one would fail far away, about a missing name
