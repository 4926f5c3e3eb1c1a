"""Adaptive placement of links, after Migliavacca and Cugola 2007 (OCBR). Pure: no I/O, no clock."""
