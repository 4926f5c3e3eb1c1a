"""What publishers and subscribers do. They talk to brokers over MQTT only."""
