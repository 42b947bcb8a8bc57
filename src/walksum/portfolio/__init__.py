"""A portfolio of small models on one graph: trained within a budget, blended by validation, kept without pickle."""
