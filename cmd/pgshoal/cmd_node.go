package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/control"
)

func newNodeCommand(env *environment) *cobra.Command {
	return newGroupCommand("node", "Add, list, label and remove nodes",
		newNodeAddCommand(env), newNodeListCommand(env), newNodeSetCommand(env), newNodeRemoveCommand(env))
}

func newNodeAddCommand(env *environment) *cobra.Command {
	var api apiOptions
	var req control.JoinRequest
	cmd := &cobra.Command{
		Use:   "add NAME --dsn DSN",
		Short: "Let an empty PostgreSQL server join as a node",
		Long: "Checks the server, copies the schema and the reference tables to it, and makes it active.\n" +
			"The DSN is a superuser's; role and password may be left out when the server has the cluster's.\n" +
			"The roles of the cluster are copied with their passwords, also to a superuser of the same name.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Name = args[0]
			if req.DSN == "" {
				return newUsageError("give the server's connection string with --dsn")
			}
			return runNodeAdd(cmd.Context(), env, &api, req)
		},
	}
	api.addFlags(cmd)
	cmd.Flags().StringVar(&req.DSN, "dsn", "", "`connection string` of a superuser; several hosts are a primary and its replicas")
	cmd.Flags().StringVar(&req.Region, "region", "", "`region` of the node")
	cmd.Flags().Float64Var(&req.Weight, "weight", 1, "share of the data compared with other nodes")
	return cmd
}

func runNodeAdd(ctx context.Context, env *environment, api *apiOptions, req control.JoinRequest) error {
	client, err := api.client()
	if err != nil {
		return err
	}
	var joined control.Joined
	data, err := client.call(ctx, http.MethodPost, "/api/v1/nodes", nil, req, &joined)
	if err != nil {
		return err
	}
	if api.json {
		_, err = env.stdout.Write(data)
		return err
	}
	for _, w := range joined.Warnings {
		fmt.Fprintf(env.stderr, "warning: %s\n", w)
	}
	fmt.Fprintf(env.stdout, "node %s is active (epoch %d)\n", joined.Node.Name, joined.Epoch)
	return nil
}

func newNodeSetCommand(env *environment) *cobra.Command {
	var api apiOptions
	var region string
	var weight float64
	cmd := &cobra.Command{
		Use:   "set NAME [--region REGION] [--weight WEIGHT]",
		Short: "Change a node's region or weight",
		Long: "Lists place rows on nodes of a region (see docs/strategies.md). A node that holds shards of a region cannot leave it.\n" +
			"The weight counts for shards that are placed from now on.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var change control.NodeChange
			if cmd.Flags().Changed("region") {
				change.Region = &region
			}
			if cmd.Flags().Changed("weight") {
				change.Weight = &weight
			}
			if change.Region == nil && change.Weight == nil {
				return newUsageError("give --region or --weight")
			}
			client, err := api.client()
			if err != nil {
				return err
			}
			var answer struct{ Epoch uint64 }
			data, err := client.call(cmd.Context(), http.MethodPatch, "/api/v1/nodes/"+url.PathEscape(args[0]), nil, change, &answer)
			if err != nil {
				return err
			}
			if api.json {
				_, err = env.stdout.Write(data)
				return err
			}
			fmt.Fprintf(env.stdout, "node %s is changed (epoch %d)\n", args[0], answer.Epoch)
			return nil
		},
	}
	api.addFlags(cmd)
	cmd.Flags().StringVar(&region, "region", "", "`region` of the node; empty for none")
	cmd.Flags().Float64Var(&weight, "weight", 1, "share of new shards compared with other nodes")
	return cmd
}

func newNodeListCommand(env *environment) *cobra.Command {
	var api apiOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the nodes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var nodes []control.NodeStatus
			return api.show(cmd.Context(), env, "/api/v1/nodes", nil, &nodes, func(w io.Writer) { printNodes(w, nodes) })
		},
	}
	api.addFlags(cmd)
	return cmd
}

func printNodes(w io.Writer, nodes []control.NodeStatus) {
	fmt.Fprintln(w, "NODE\tSTATE\tSHARDS\tWEIGHT\tREGION\tADDRESS\tROLE\tLAG")
	for _, n := range nodes {
		name := n.Name
		if n.Home {
			name += " (home)"
		}
		for i, s := range n.Servers {
			role, lag := s.Role, "-"
			switch {
			case s.Checked.IsZero():
				role = "not seen yet"
			case !s.Reachable:
				role = "down"
			}
			if s.Role == "replica" {
				lag = fmt.Sprintf("%d bytes", s.LagBytes)
			}
			if i > 0 {
				fmt.Fprintf(w, "\t\t\t\t\t%s\t%s\t%s\n", s.Address, role, lag)
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%g\t%s\t%s\t%s\t%s\n", name, n.State, n.Shards, n.Weight, orDash(n.Region), s.Address, role, lag)
		}
	}
}

func newNodeRemoveCommand(env *environment) *cobra.Command {
	var api apiOptions
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Take a node that holds no shards out of the cluster",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := api.client()
			if err != nil {
				return err
			}
			data, err := client.call(cmd.Context(), http.MethodDelete, "/api/v1/nodes/"+url.PathEscape(args[0]), nil, nil, nil)
			if err != nil {
				return err
			}
			if api.json {
				_, err = env.stdout.Write(data)
				return err
			}
			fmt.Fprintf(env.stdout, "node %s is out of the cluster; its server still runs and keeps what it holds\n", args[0])
			return nil
		},
	}
	api.addFlags(cmd)
	return cmd
}
