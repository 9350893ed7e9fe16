//! What is advised, by name: tests name each piece of advice that they carry out.

/// Declares the advice, each with what it is about.
macro_rules! advice {
    ($($(#[$about:meta])* $name:ident,)*) => {
        /// A piece of advice.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Advice {
            $($(#[$about])* $name,)*
        }

        impl Advice {
            /// Every piece of advice.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

advice! {
    /// Nodes must be added: those that are there have too little room.
    AddNodes,
    /// The Workload may be stopped until there is room for it.
    StopUntilRoom,
    /// The flavor must know the taint of its nodes.
    AddTaintToFlavor,
    /// Nodes lack labels.
    LabelNodes,
    /// Nodes are cordoned.
    Uncordon,
    /// Volumes of the pods are missing or not bound.
    BindVolumes,
    /// Other programs must take their scheduling gates away.
    SeeGates,
    /// The scheduler of the pods may not run.
    SeeScheduler,
    /// The scheduler says what is wrong.
    FollowScheduler,
    /// The image of a container cannot be pulled.
    CorrectImage,
    /// A ConfigMap or Secret of a container is missing.
    CreateConfig,
    /// A container ends again and again.
    ReadLogs,
    /// The node prepares the container.
    AwaitNode,
    /// The kubelet of the node has not taken the pod.
    SeeKubelet,
    /// The message of a container says what is wrong.
    FollowContainer,
    /// The manager starts the job next.
    AwaitStart,
    /// The job's controller does not make its pods.
    SeeJobController,
    /// The events of the job say what is wrong.
    ReadEvents,
    /// The job or what it names is wrong.
    CorrectJob,
    /// The Workload that the job names must be made.
    CreateWorkload,
    /// The job asks for no pods.
    ScaleUp,
    /// The job that it is a part of is queued.
    AskAboutWhole,
    /// The Workload of what it is a part of is queued.
    AskAboutWorkload,
    /// The controller of what it is a part of makes the Workload.
    AwaitWorkload,
    /// Jobs of its namespace are not managed.
    UseManagedNamespace,
    /// A pod must be made again to get a queue.
    RecreateWithQueue,
    /// The job must name a queue.
    NameQueue,
    /// Its priority class must be made.
    CreatePriorityClass,
    /// Pods of its group must be made.
    CompleteGroup,
    /// Pods of its group must be made again.
    RecreatePods,
    /// The flavor needs a topology.
    GiveTopology,
    /// The pods must request what a flavor with a topology has.
    RequestOfTopology,
    /// No scheduling gate can hold its pods back until they have nodes.
    UseFlavorWithoutTopology,
    /// The Topology of the flavor must be made.
    CreateTopology,
    /// Programs must remove their finalizers.
    AwaitFinalizers,
    /// Its namespace goes.
    UseOtherNamespace,
    /// Its queue goes.
    UseOtherQueue,
    /// A flavor of its queue goes.
    UseOtherFlavor,
    /// A Cohort above its queue goes.
    UseOtherCohort,
    /// Another LocalQueue is there.
    NameExistingQueue,
    /// Its LocalQueue must be made.
    CreateLocalQueue,
    /// Its ClusterQueue must be made.
    CreateClusterQueue,
    /// A queue is stopped.
    Resume,
    /// The ClusterQueue names what does not exist.
    CompleteClusterQueue,
    /// The ClusterQueue selects no namespace.
    SelectNamespace,
    /// The namespace lacks labels.
    LabelNamespace,
    /// No labels can match the selector of the ClusterQueue.
    ChangeSelector,
    /// The ClusterQueue does not cover a resource.
    CoverResource,
    /// The flavor or its topology exists by now, or has the levels by now that are asked for.
    AwaitFlavor,
    /// Resources come from several flavors with a topology.
    OneResourceGroup,
    /// So many pods fit.
    FewerPodsOfThatSize,
    /// So much for each pod fits.
    SmallerPods,
    /// So much for all pod sets fits.
    SmallerInAll,
    /// Something could not be read.
    AskAgain,
    /// Pods of others must become ready.
    AwaitPodsReady,
    /// Others are being stopped.
    AwaitVictims,
    /// The manager says why it refuses it.
    FollowManager,
    /// A preemption is held back.
    EndPreemptionLoop,
    /// Requests and limits are wrong.
    CorrectRequests,
    /// Something that it depends on has changed.
    AwaitChange,
    /// It is tried again in the next cycle.
    AwaitCycle,
    /// It is tried again with its equivalent.
    AwaitEquivalent,
    /// The controller of a check has to answer.
    AwaitCheck,
    /// The object of a check is missing.
    CreateCheck,
    /// The check is asked again.
    AwaitRetry,
    /// The check reports what is wrong.
    CorrectCheck,
    /// Nodes of a flavor are not well, or too few.
    RepairNodes,
    /// Others on the nodes end.
    AwaitRoom,
    /// The Workload is deactivated.
    Activate,
    /// It is queued again later.
    AwaitBackoff,
    /// A program holds the job back by an annotation.
    RemoveGate,
    /// Nodes of the job failed.
    RepairLostNodes,
    /// Its queue would not admit it again.
    LetQueueTakeItBack,
    /// The job starts with fewer pods.
    FewerPods,
    /// The job starts with more quota.
    MoreQuota,
    /// The job starts with a higher priority.
    HigherPriority,
    /// The job starts on a flavor that its pods keep out.
    AllowFlavor,
    /// The job starts with another topology request.
    OtherTopology,
    /// The job starts with a weaker topology request.
    LaxerTopology,
    /// The job starts when another one ends.
    AwaitJob,
}
