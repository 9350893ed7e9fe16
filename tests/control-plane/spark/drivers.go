// A stand-in for the end of drivers: a driver that ends or is told to stop deletes its executors, as Spark does where nothing else is said.
// The executors of one that succeeded have no other reason to go.
package main

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func drivers(kubeconfig string) error {
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	all := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.LabelSelector = "spark-role=driver"
	}))
	over := func(driver *corev1.Pod) {
		executors := metav1.ListOptions{LabelSelector: "spark-role=executor,spark-app-selector=" + driver.Labels["spark-app-selector"]}
		pods := client.CoreV1().Pods(driver.Namespace)
		if err := pods.DeleteCollection(context.Background(), metav1.DeleteOptions{}, executors); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	look := func(object any) {
		driver, is := object.(*corev1.Pod)
		if !is {
			return
		}
		ended := driver.Status.Phase == corev1.PodSucceeded || driver.Status.Phase == corev1.PodFailed
		if ended || driver.DeletionTimestamp != nil {
			over(driver)
		}
	}
	_, err = all.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    look,
		UpdateFunc: func(_, driver any) { look(driver) },
		DeleteFunc: func(object any) {
			if unknown, is := object.(cache.DeletedFinalStateUnknown); is {
				object = unknown.Obj
			}
			if driver, is := object.(*corev1.Pod); is {
				over(driver)
			}
		},
	})
	if err != nil {
		return err
	}
	all.Start(nil)
	select {}
}
