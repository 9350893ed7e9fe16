// The trainer's controllers as one program of the test bed, with their webhooks.
//
// The trainer's own main package makes its certificates in the cluster and listens at fixed ports. Everything that acts on TrainJobs and their
// runtimes is its own.
package main

import (
	"context"
	"flag"
	"os"

	configapi "github.com/kubeflow/trainer/v2/pkg/apis/config/v1alpha1"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/controller"
	runtimecore "github.com/kubeflow/trainer/v2/pkg/runtime/core"
	"github.com/kubeflow/trainer/v2/pkg/webhooks"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	schedulerpluginsv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
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
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme,
		configapi.AddToScheme,
		trainer.AddToScheme,
		jobsetv1alpha2.AddToScheme,
		schedulerpluginsv1alpha1.AddToScheme,
		volcanov1beta1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
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
	var configuration configapi.Configuration
	scheme.Default(&configuration)
	runtimes, err := runtimecore.New(ctx, all.GetClient(), all.GetFieldIndexer(), &configuration)
	if err != nil {
		return err
	}
	if _, err := controller.SetupControllers(all, runtimes, ctrlconfig.Options{}); err != nil {
		return err
	}
	if _, err := webhooks.Setup(all, runtimes); err != nil {
		return err
	}
	return all.Start(ctx)
}
