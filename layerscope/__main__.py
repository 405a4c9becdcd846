from layerscope.cli import start

start()
