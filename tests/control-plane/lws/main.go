// The controllers of LeaderWorkerSets as one program of the test bed, with their webhooks.
//
// Their own main package makes its certificates in the cluster, elects a leader and listens at fixed ports. Everything that acts on LeaderWorkerSets
// and their pods is its own.
package main

import (
	"context"
	"flag"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	leaderworkersetv1 "sigs.k8s.io/lws/api/leaderworkerset/v1"
	"sigs.k8s.io/lws/pkg/controllers"
	"sigs.k8s.io/lws/pkg/webhooks"
)

func main() {
	port := flag.Int("webhook-port", 0, "the port of the webhooks, on 127.0.0.1")
	certificates := flag.String("cert-dir", "", "the folder with tls.crt and tls.key")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler(), *port, *certificates); err != nil {
		ctrl.Log.Error(err, "stopped")
		os.Exit(1)
	}
}

func run(ctx context.Context, port int, certificates string) error {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(leaderworkersetv1.AddToScheme(scheme))
	access, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	access.QPS, access.Burst = 200, 400
	all, err := ctrl.NewManager(access, ctrl.Options{
		Scheme:        scheme,
		Metrics:       metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: certificates}),
	})
	if err != nil {
		return err
	}
	if err := controllers.SetupIndexes(all.GetFieldIndexer()); err != nil {
		return err
	}
	events := all.GetEventRecorderFor("leaderworkerset")
	if err := controllers.NewLeaderWorkerSetReconciler(all.GetClient(), scheme, events).SetupWithManager(all); err != nil {
		return err
	}
	// No other scheduler places groups here.
	if err := controllers.NewPodReconciler(all.GetClient(), scheme, events, nil).SetupWithManager(all); err != nil {
		return err
	}
	if err := webhooks.SetupLeaderWorkerSetWebhook(all); err != nil {
		return err
	}
	if err := webhooks.NewPodWebhook(nil).Setup(all); err != nil {
		return err
	}
	return all.Start(ctx)
}
