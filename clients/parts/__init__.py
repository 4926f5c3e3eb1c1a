"""Every module of this folder is a part of a workload: its record is called PART."""
