// Package torture kills, stops, crashes and cuts off the parts of a real cluster while clients transfer money between its nodes,
// and checks that nothing is lost, doubled, half done or seen in halves. `make torture` runs it for minutes, `make test` for seconds.
package torture
