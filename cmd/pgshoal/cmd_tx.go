package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/control"
)

func newTxCommand(env *environment) *cobra.Command {
	return newGroupCommand("tx", "Show and settle transactions over several nodes", newTxListCommand(env), newTxResolveCommand(env))
}

func newTxListCommand(env *environment) *cobra.Command {
	var api apiOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the transactions that are prepared on nodes",
		Long: "Transactions that are just being committed are among them. One that stays for seconds has lost its router, and the\n" +
			"controller settles it; one that stays longer waits for a node.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list control.TransactionList
			return api.show(cmd.Context(), env, "/api/v1/transactions", nil, &list, func(w io.Writer) { printTransactions(w, &list) })
		},
	}
	api.addFlags(cmd)
	return cmd
}

func printTransactions(w io.Writer, list *control.TransactionList) {
	if len(list.Transactions) == 0 {
		fmt.Fprintln(w, "no transaction is prepared")
	} else {
		fmt.Fprintln(w, "GID\tDATABASE\tAGE\tSTATE\tDECIDER\tPREPARED ON")
	}
	for _, t := range list.Transactions {
		age := time.Duration(t.Age * float64(time.Second)).Round(100 * time.Millisecond)
		fmt.Fprintf(w, "%s\t%s\t%v\t%s\t%s\t%s\n", t.GID, t.Database, age, t.State, t.Decider, strings.Join(t.Nodes, ", "))
	}
	for node, why := range list.Unreachable {
		fmt.Fprintf(w, "node %s does not answer: %s\n", node, why)
	}
}

func newTxResolveCommand(env *environment) *cobra.Command {
	var api apiOptions
	var commit, rollback bool
	cmd := &cobra.Command{
		Use:   "resolve GID [--commit | --rollback]",
		Short: "Settle a prepared transaction now",
		Long: "Does what the controller does by itself after some seconds: asks the decider, and commits or rolls back on all nodes.\n" +
			"--commit and --rollback are refused when the decider says otherwise: no transaction ends differently on two nodes.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := control.ResolveRequest{GID: args[0]}
			switch {
			case commit && rollback:
				return newUsageError("give either --commit or --rollback")
			case commit:
				req.Outcome = "commit"
			case rollback:
				req.Outcome = "rollback"
			}
			client, err := api.client()
			if err != nil {
				return err
			}
			var done control.ResolvedTransaction
			data, err := client.call(cmd.Context(), http.MethodPost, "/api/v1/transactions/resolve", nil, req, &done)
			if err != nil {
				return err
			}
			if done.Outcome == "left" {
				return fmt.Errorf("transaction %s is still prepared: %s", done.GID, done.Reason)
			}
			if api.json {
				_, err = env.stdout.Write(data)
				return err
			}
			fmt.Fprintf(env.stdout, "transaction %s is %s on %s\n", done.GID, done.Outcome, strings.Join(done.Nodes, ", "))
			return nil
		},
	}
	api.addFlags(cmd)
	cmd.Flags().BoolVar(&commit, "commit", false, "only if it was decided to commit")
	cmd.Flags().BoolVar(&rollback, "rollback", false, "only if it was not decided to commit")
	return cmd
}
