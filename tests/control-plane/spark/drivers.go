// A stand-in for what runs in drivers: a driver that runs makes its executors, which it owns; a driver that ends or receives SIGTERM deletes them, as
// Spark does by default. The executors of a driver that succeeded end only because of that.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	made := map[types.UID]bool{}
	runs := func(driver *corev1.Pod) {
		executors := []*corev1.Pod{}
		if err := json.Unmarshal([]byte(driver.Annotations[executorsKey]), &executors); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		for _, executor := range executors {
			name := driver.Labels["sparkoperator.k8s.io/app-name"]
			executor.Name = fmt.Sprintf("%s-%s-%s", name, driver.UID[:8], executor.Name)
			controls := true
			owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: driver.Name, UID: driver.UID, Controller: &controls}
			executor.OwnerReferences = append(executor.OwnerReferences, owner)
			if _, err := client.CoreV1().Pods(driver.Namespace).Create(context.Background(), executor, metav1.CreateOptions{}); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
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
		} else if driver.Status.Phase == corev1.PodRunning && driver.Annotations[executorsKey] != "" && !made[driver.UID] {
			made[driver.UID] = true
			runs(driver)
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
