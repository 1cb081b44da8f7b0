from quadrat.installed.config import show_config as show_config
