// Package torture kills, stops and crashes the parts of a real cluster while clients transfer money between its nodes, and
// checks that nothing is lost, doubled or half done. `make torture` runs it for minutes, `make test` for seconds.
package torture
