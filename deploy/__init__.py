"""Images, compose files, and the configuration of Prometheus and Grafana; `dashboards.py` writes the dashboards."""
