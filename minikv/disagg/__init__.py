"""Prefill and decode as two kinds of node."""
