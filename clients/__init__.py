"""The clients of a scenario. They communicate with brokers over MQTT only."""
