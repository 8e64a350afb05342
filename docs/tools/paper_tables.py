"""All tables of the papers' pages, which are made from the JSON that benchmarks wrote."""

from tools import saddle_l1svm_tables, sbp_gadget_tables, sodm_claims, sodm_tables

TABLES = saddle_l1svm_tables.TABLES | sbp_gadget_tables.TABLES | sodm_tables.TABLES | sodm_claims.TABLES
