"""All tables of the papers' pages that are made from results."""

from tools import saddle_l1svm_tables, sodm_tables

TABLES = saddle_l1svm_tables.TABLES | sodm_tables.TABLES
