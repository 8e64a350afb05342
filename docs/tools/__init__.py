"""Generators of pages."""
