// Command relay is the stock relay: no functions of its own, everything chosen by the environment.
package main

import (
	"binrelay/cmd"
	"binrelay/functions"
)

func main() { cmd.Main(functions.Set{}) }
