"""The one import name of brokerbed: its command line, and the vocabulary that its parts share."""
