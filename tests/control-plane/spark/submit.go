// A stand-in for spark-submit, as far as others see pods of it: Spark itself needs a Java machine, and no process runs in the test bed's pods.
//
// It takes the command line that the Spark operator gives to spark-submit, and makes the driver's pod of it, as Spark does on Kubernetes in
// cluster mode. The driver learns which executors it makes once it runs.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// What Spark adds to the memory of a Python process, and at least.
const (
	overheadFactor = 0.4
	leastOverhead  = 384 << 20
)

// The annotation of a driver with the pods that it makes.
const executorsKey = "sluice.dev/executors"

type conf map[string]string

func submit(args []string) error {
	settings := conf{}
	for at := 0; at+1 < len(args); at++ {
		switch args[at] {
		case "--conf":
			key, value, found := strings.Cut(args[at+1], "=")
			if !found {
				return fmt.Errorf("no value: %s", args[at+1])
			}
			settings[key] = value
			at++
		case "--name", "--deploy-mode", "--master":
			settings[args[at]] = args[at+1]
			at++
		}
	}
	if settings["--deploy-mode"] != "cluster" {
		return fmt.Errorf("only cluster mode: %q", settings["--deploy-mode"])
	}
	access, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	pods := client.CoreV1().Pods(settings["spark.kubernetes.namespace"])
	application := "spark-" + settings["spark.kubernetes.driver.label.sparkoperator.k8s.io/submission-id"]
	driver, err := settings.pod("driver", application)
	if err != nil {
		return err
	}
	driver.Name = settings["spark.kubernetes.driver.pod.name"]
	driver.Spec.RestartPolicy = corev1.RestartPolicyNever
	executors, err := settings.executors(application)
	if err != nil {
		return err
	}
	driver.Annotations[executorsKey] = executors
	_, err = pods.Create(context.Background(), driver, metav1.CreateOptions{})
	return err
}

// executors says which pods the driver makes once it runs.
func (c conf) executors(application string) (string, error) {
	count, err := strconv.Atoi(c.get("spark.executor.instances", "2"))
	if err != nil {
		return "", err
	}
	pods := []*corev1.Pod{}
	for number := 1; number <= count; number++ {
		executor, err := c.pod("executor", application)
		if err != nil {
			return "", err
		}
		executor.Name = fmt.Sprintf("exec-%d", number)
		executor.Labels["spark-exec-id"] = strconv.Itoa(number)
		executor.Spec.RestartPolicy = corev1.RestartPolicyNever
		pods = append(pods, executor)
	}
	text, err := json.Marshal(pods)
	return string(text), err
}

func (c conf) get(key, otherwise string) string {
	if value, found := c[key]; found {
		return value
	}
	return otherwise
}

// with calls for each setting whose name begins so, with the rest of the name.
func (c conf) with(prefix string, call func(key, value string)) {
	for name, value := range c {
		if key, found := strings.CutPrefix(name, prefix); found {
			call(key, value)
		}
	}
}

// pod makes a pod of a role: its template with what the settings say.
func (c conf) pod(role, application string) (*corev1.Pod, error) {
	of := "spark.kubernetes." + role + "."
	template := corev1.PodTemplateSpec{}
	if path := c[of+"podTemplateFile"]; path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := yaml.Unmarshal(text, &template); err != nil {
			return nil, err
		}
	}
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	if pod.Spec.NodeSelector == nil {
		pod.Spec.NodeSelector = map[string]string{}
	}
	pod.Labels["spark-role"] = role
	pod.Labels["spark-app-selector"] = application
	c.with(of+"label.", func(key, value string) { pod.Labels[key] = value })
	c.with(of+"annotation.", func(key, value string) { pod.Annotations[key] = value })
	for _, prefix := range []string{"spark.kubernetes.node.selector.", of + "node.selector."} {
		c.with(prefix, func(key, value string) { pod.Spec.NodeSelector[key] = value })
	}
	if len(pod.Spec.Containers) == 0 {
		return nil, fmt.Errorf("the template of the %s has no container", role)
	}
	container := &pod.Spec.Containers[0]
	for at := range pod.Spec.Containers {
		if pod.Spec.Containers[at].Name == c[of+"podTemplateContainerName"] {
			container = &pod.Spec.Containers[at]
		}
	}
	container.Image = c.get(of+"container.image", c.get("spark.kubernetes.container.image", container.Image))
	if container.Resources.Requests == nil {
		container.Resources.Requests = corev1.ResourceList{}
	}
	if container.Resources.Limits == nil {
		container.Resources.Limits = corev1.ResourceList{}
	}
	cores := c.get(of+"request.cores", c.get("spark."+role+".cores", "1"))
	amount, err := resource.ParseQuantity(cores)
	if err != nil {
		return nil, err
	}
	container.Resources.Requests[corev1.ResourceCPU] = amount
	if limit := c[of+"limit.cores"]; limit != "" {
		if container.Resources.Limits[corev1.ResourceCPU], err = resource.ParseQuantity(limit); err != nil {
			return nil, err
		}
	}
	memory, err := bytes(c.get("spark."+role+".memory", "1g"))
	if err != nil {
		return nil, err
	}
	overhead := max(int64(float64(memory)*overheadFactor), leastOverhead)
	if given := c["spark."+role+".memoryOverhead"]; given != "" {
		if overhead, err = bytes(given); err != nil {
			return nil, err
		}
	}
	container.Resources.Requests[corev1.ResourceMemory] = *resource.NewQuantity(memory+overhead, resource.BinarySI)
	container.Resources.Limits[corev1.ResourceMemory] = *resource.NewQuantity(memory+overhead, resource.BinarySI)
	return pod, nil
}

// bytes reads an amount of memory as Spark writes it.
func bytes(text string) (int64, error) {
	shifts := map[byte]int{'k': 10, 'm': 20, 'g': 30, 't': 40}
	text = strings.TrimSuffix(strings.ToLower(text), "b")
	shift := 20
	if last := len(text) - 1; last >= 0 {
		if known, found := shifts[text[last]]; found {
			text, shift = text[:last], known
		}
	}
	number, err := strconv.ParseInt(text, 10, 64)
	return number << shift, err
}
