from layerscope.cli import main

main()
