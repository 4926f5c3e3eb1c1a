"""The local ground: links between processes of this machine."""
