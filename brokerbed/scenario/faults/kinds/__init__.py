"""Every module of this folder is a kind of fault: its record is called KIND."""
