"""From a name to a bound Hugging Face model."""
