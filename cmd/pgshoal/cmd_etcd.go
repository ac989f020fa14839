package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/localcluster"
)

func newEtcdCommand(env *environment) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "etcd",
		Short: "Run the embedded topology store of a cluster on this machine",
		Long: "Run the embedded topology store of a cluster on this machine. pgshoal up starts it by itself;\n" +
			"clusters in production use an etcd of their own.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := clusterDir(dir)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return localcluster.ServeEtcd(ctx, dir, env.log, func(endpoint string) {
				fmt.Fprintf(env.stdout, "listening on %s\n", endpoint)
			})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the cluster's directory ("+defaultDirText()+")")
	return cmd
}
