module muster.dev/bench/passthrough

go 1.24
