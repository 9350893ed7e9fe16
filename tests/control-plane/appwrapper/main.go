// The controller of AppWrappers as one program of the test bed.
//
// Its own main package wants a namespace with its configuration, certificates and fixed ports. Everything that acts on AppWrappers is its own;
// only nodes with broken devices, which it can identify, are left out, and what it may wait for is shorter.
package main

import (
	"flag"
	"os"
	"time"

	awv1beta2 "github.com/project-codeflare/appwrapper/api/v1beta2"
	"github.com/project-codeflare/appwrapper/pkg/config"
	"github.com/project-codeflare/appwrapper/pkg/controller"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	flag.Parse()
	ctrl.SetLogger(zap.New())
	if err := run(); err != nil {
		ctrl.Log.Error(err, "stopped")
		os.Exit(1)
	}
}

func run() error {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(awv1beta2.AddToScheme(scheme))
	access, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	access.QPS, access.Burst = 200, 400
	all, err := ctrl.NewManager(access, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		// From a cache that has not seen yet what it made itself, it would take that for deleted, and the AppWrapper for failed.
		NewClient: func(access *rest.Config, options client.Options) (client.Client, error) {
			options.Cache = nil
			return client.New(access, options)
		},
	})
	if err != nil {
		return err
	}
	options := config.NewAppWrapperConfig()
	options.Autopilot = nil
	options.FaultTolerance.FailureGracePeriod = time.Second
	options.FaultTolerance.RetryLimit = 0
	if err := controller.SetupControllers(all, options); err != nil {
		return err
	}
	return all.Start(ctrl.SetupSignalHandler())
}
