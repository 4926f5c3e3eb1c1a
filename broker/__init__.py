"""The MQTT broker of brokerbed. It knows nothing of scenarios, grounds or analysis."""
