"""The one import name of brokerbed: its front door, and the vocabulary that its parts share."""
