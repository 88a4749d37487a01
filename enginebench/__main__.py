from enginebench.cli import main

main()
