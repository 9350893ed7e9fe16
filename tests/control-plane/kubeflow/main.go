// The controllers of Kubeflow's jobs as one program of the test bed: those of the training operator, with their webhooks, and the MPI operator's.
//
// The operators' own main packages want what a test bed does not have: certificates that a cluster mounts at a fixed path, and a fixed port.
// Everything that acts on jobs is theirs.
//
// With another group it runs the controller of JAXJobs alone, for a kind that is like theirs and that Sluice does not know.
package main

import (
	"context"
	"flag"
	"os"

	mpioptions "github.com/kubeflow/mpi-operator/cmd/mpi-operator/app/options"
	mpiclient "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned"
	mpischeme "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned/scheme"
	mpiinformers "github.com/kubeflow/mpi-operator/pkg/client/informers/externalversions"
	mpicontroller "github.com/kubeflow/mpi-operator/pkg/controller"
	kubeflowv1 "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	trainingconfig "github.com/kubeflow/training-operator/pkg/config"
	controllerv1 "github.com/kubeflow/training-operator/pkg/controller.v1"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	"github.com/kubeflow/training-operator/pkg/webhooks"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// The kinds of the training operator; MPIJobs are the MPI operator's.
var kinds = []string{
	kubeflowv1.JAXJobKind,
	kubeflowv1.PaddleJobKind,
	kubeflowv1.PyTorchJobKind,
	kubeflowv1.TFJobKind,
	kubeflowv1.XGBoostJobKind,
}

func main() {
	port := flag.Int("webhook-port", 0, "the port of the webhooks, on 127.0.0.1")
	certificates := flag.String("cert-dir", "", "the folder with tls.crt and tls.key")
	group := flag.String("group", "", "the API group of JAXJobs, of which no others are run then, without webhooks")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	ctx := ctrl.SetupSignalHandler()
	var err error
	if *group == "" {
		err = run(ctx, *port, *certificates)
	} else {
		err = runOther(ctx, *group)
	}
	if err != nil {
		ctrl.Log.Error(err, "stopped")
		os.Exit(1)
	}
}

func run(ctx context.Context, port int, certificates string) error {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(kubeflowv1.AddToScheme(scheme))
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: certificates})
	all, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:        scheme,
		Metrics:       metricsserver.Options{BindAddress: "0"},
		WebhookServer: server,
	})
	if err != nil {
		return err
	}
	// The defaults of the training operator's flags: without an image the API server refuses the workers of PyTorchJobs.
	trainingconfig.Config.PyTorchInitContainerImage = trainingconfig.PyTorchInitContainerImageDefault
	trainingconfig.Config.PyTorchInitContainerTemplateFile = trainingconfig.PyTorchInitContainerTemplateFileDefault
	trainingconfig.Config.PyTorchInitContainerMaxTries = trainingconfig.PyTorchInitContainerMaxTriesDefault
	for _, kind := range kinds {
		if err := controllerv1.SupportedSchemeReconciler[kind](all, common.GenNonGangSchedulerSetupFunc(), 1); err != nil {
			return err
		}
		if err := webhooks.SupportedSchemeWebhook[kind](all); err != nil {
			return err
		}
	}
	mpi := func(ctx context.Context) error { return runMPI(ctx, config) }
	if err := all.Add(manager.RunnableFunc(mpi)); err != nil {
		return err
	}
	return all.Start(ctx)
}

func runOther(ctx context.Context, group string) error {
	kubeflowv1.GroupVersion.Group = group
	kubeflowv1.SchemeGroupVersion.Group = group
	kubeflowv1.SchemeBuilder.GroupVersion.Group = group
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(kubeflowv1.AddToScheme(scheme))
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	all, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	reconciler := controllerv1.SupportedSchemeReconciler[kubeflowv1.JAXJobKind]
	if err := reconciler(all, common.GenNonGangSchedulerSetupFunc(), 1); err != nil {
		return err
	}
	return all.Start(ctx)
}

func runMPI(ctx context.Context, config *rest.Config) error {
	if err := mpischeme.AddToScheme(clientgoscheme.Scheme); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	jobs, err := mpiclient.NewForConfig(config)
	if err != nil {
		return err
	}
	core := informers.NewSharedInformerFactory(client, 0)
	own := mpiinformers.NewSharedInformerFactory(jobs, 0)
	controller, err := mpicontroller.NewMPIJobController(
		ctx, client, jobs, nil, nil,
		core.Core().V1().ConfigMaps(),
		core.Core().V1().Secrets(),
		core.Core().V1().Services(),
		core.Batch().V1().Jobs(),
		core.Core().V1().Pods(),
		core.Scheduling().V1().PriorityClasses(),
		own.Kubeflow().V2beta1().MPIJobs(),
		&mpioptions.ServerOption{ControllerRateLimit: 10, ControllerBurst: 100})
	if err != nil {
		return err
	}
	core.Start(ctx.Done())
	own.Start(ctx.Done())
	return controller.Run(2, ctx.Done())
}
