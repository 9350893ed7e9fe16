//! The Workload of a group: how it would be made, and how the group compares with the existing one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_api::labels;

use super::group::{Group, Role};
use super::member::Member;
use super::order::{Keep, Leave};
use super::owners::{MAX_OWNER_BYTES, OWNER_BYTES};
use crate::object::{MAX_POD_SETS, saturated};

/// A pod set of a group's Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleCount {
    /// The role of its pods: its name.
    pub role: Arc<str>,
    /// How many pods.
    pub count: i32,
}

/// The content of a group's Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composition {
    /// Its LocalQueue.
    pub queue_name: Option<Arc<str>>,
    /// Its pod sets, by name.
    pub pod_sets: Vec<RoleCount>,
    /// The labels that it takes over.
    pub labels: BTreeMap<String, String>,
    /// Pods beyond the group's number, which are finalized and deleted.
    pub excess: Vec<Arc<str>>,
}

/// Why a group has no Workload. Only another change of its pods can help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComposeError {
    /// Not all pods were created yet.
    #[error("'{group}' group has fewer runnable pods than expected")]
    FewerPods {
        /// The group.
        group: String,
    },
    /// The pods name several queues.
    #[error("pods '{}' and '{}' has different queue names: {}!={}", .pods[0], .pods[1], .queues[0], .queues[1])]
    Queues {
        /// Two pods.
        pods: [String; 2],
        /// Their queues.
        queues: [String; 2],
    },
    /// The pods do not agree on how many they are.
    #[error("pods '{}' and '{}' has different '{}' values: {}!={}", .pods[0], .pods[1], labels::POD_GROUP_TOTAL_COUNT, .counts[0], .counts[1])]
    TotalCounts {
        /// Two pods.
        pods: [String; 2],
        /// Their numbers.
        counts: [String; 2],
    },
    /// The number of pods cannot be read.
    #[error("{0}")]
    TotalCount(String),
    /// A pod's number in the group is invalid.
    #[error(
        "incorrect label value '{}={value}': must be an integer below {total}",
        labels::POD_GROUP_POD_INDEX
    )]
    Index {
        /// The value of the label.
        value: String,
        /// The number of pods.
        total: i32,
    },
    /// There are too many pods, or their names are too long.
    #[error(
        "pod group can't include {total} pods with such names: as owners of its Workload they take {bytes} bytes, at most {MAX_OWNER_BYTES}"
    )]
    Pods {
        /// The number of pods in the group.
        total: i32,
        /// How many bytes their owner references take.
        bytes: usize,
    },
    /// There are too many roles.
    #[error("pod group can't include more than {MAX_POD_SETS} roles")]
    Roles,
    /// A label that is copied to the Workload has several values.
    #[error("constructing workload: pods have different label values for '{key}'")]
    Labels {
        /// The label.
        key: String,
    },
    /// A pod cannot be read.
    #[error("{0}")]
    Pod(String),
}

/// How a group stands to its Workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Against {
    /// Whether the Workload belongs to these pods; if not, it is no longer theirs.
    pub matches: bool,
    /// Pods that are missing.
    pub absent: i32,
    /// Pods beyond those of their role, which are finalized and deleted.
    pub excess: Vec<Arc<str>>,
    /// Pods that do not count and that others have replaced: they are finalized.
    pub replaced: Vec<Arc<str>>,
    /// Pods of roles that the Workload does not have, and that run or may at any time.
    pub strangers: Vec<Arc<str>>,
}

impl Group {
    /// The content of the Workload of the group with this name.
    ///
    /// # Errors
    ///
    /// If pods are missing, cannot be read, or disagree on their number, their queue or a label to copy; if a pod has a number that is not below the
    /// total; or if the pods or their roles are too many for a Workload.
    pub fn compose(&self, group: &str) -> Result<Composition, ComposeError> {
        let total = self.agreed_total()?;
        let excess = beyond(&self.counting, total);
        self.check_owners(total, &excess)?;
        self.check_indexes(total)?;
        let fast = self.is_fast();
        if !fast && count(self.counting.len()) < total {
            return Err(ComposeError::FewerPods { group: group.to_owned() });
        }
        let queue_name = self.queues.agreed().map_err(|[one, other]| {
            let text = |queue: &Option<Arc<str>>| queue.as_deref().unwrap_or_default().to_owned();
            ComposeError::Queues {
                pods: [one.1.to_owned(), other.1.to_owned()],
                queues: [text(one.0), text(other.0)],
            }
        })?;
        Ok(Composition {
            queue_name: queue_name.cloned().flatten(),
            pod_sets: if fast { self.one_pod_set(group, total)? } else { self.pod_sets(&excess)? },
            labels: self.labels_to_copy()?,
            excess,
        })
    }

    /// Pods that do not count and that our finalizer keeps. While there is no Workload they are finalized: no other pod is awaited in their place.
    pub fn inactive(&self) -> Vec<Arc<str>> {
        let held = self.roles.values().flat_map(Role::held_inactive);
        held.map(|leave| Arc::clone(&leave.name)).collect()
    }

    fn agreed_total(&self) -> Result<i32, ComposeError> {
        let text = |count: &Result<i32, String>| count.as_ref().map_or_else(Clone::clone, i32::to_string);
        match self.totals.agreed() {
            Ok(Some(Ok(total))) => Ok(*total),
            Ok(Some(Err(why))) => Err(ComposeError::TotalCount(why.clone())),
            Ok(None) => Err(ComposeError::TotalCount("the group has no pods".to_owned())),
            Err([one, other]) => Err(ComposeError::TotalCounts {
                pods: [one.1.to_owned(), other.1.to_owned()],
                counts: [text(one.0), text(other.0)],
            }),
        }
    }

    /// Checks that the owner references of all pods fit into the Workload. Pods that were not created yet are assumed to have names as long as the
    /// present ones: so a group that is too large is refused with its first pod.
    fn check_owners(&self, total: i32, without: &[Arc<str>]) -> Result<(), ComposeError> {
        let there = self.counting.len() - without.len();
        let names = self.name_bytes - without.iter().map(|name| name.len()).sum::<usize>();
        let pods = usize::try_from(total).unwrap_or(0);
        let names = names.saturating_mul(pods).checked_div(there).unwrap_or(pods);
        let bytes = pods.saturating_mul(OWNER_BYTES).saturating_add(names);
        if bytes > MAX_OWNER_BYTES { Err(ComposeError::Pods { total, bytes }) } else { Ok(()) }
    }

    /// Numbers of pods are below their total.
    fn check_indexes(&self, total: i32) -> Result<(), ComposeError> {
        let bad = match self.indexes.values().next_back() {
            None => return Ok(()),
            Some(Err(text)) => text.clone(),
            Some(Ok(index)) if i64::from(*index) < i64::from(total) => return Ok(()),
            Some(Ok(index)) => index.to_string(),
        };
        Err(ComposeError::Index { value: bad, total })
    }

    /// A pod set for each role that remains without these pods.
    fn pod_sets(&self, without: &[Arc<str>]) -> Result<Vec<RoleCount>, ComposeError> {
        let mut less: BTreeMap<&str, i32> = BTreeMap::new();
        for member in without.iter().filter_map(|name| self.get(name)) {
            *less.entry(&*member.role).or_default() += 1;
        }
        let left = |(role, pods): (&Arc<str>, &Role)| RoleCount {
            role: Arc::clone(role),
            count: count(pods.counting.len()) - less.get(&**role).copied().unwrap_or(0),
        };
        let pod_sets: Vec<_> = self.roles.iter().map(left).filter(|pod_set| pod_set.count > 0).collect();
        if pod_sets.len() > MAX_POD_SETS {
            return Err(ComposeError::Roles);
        }
        for pod_set in &pod_sets {
            self.check_role(&pod_set.role)?;
        }
        Ok(pod_sets)
    }

    /// The pod set of a group that does not wait for its pods: all are taken to be like the first.
    fn one_pod_set(&self, group: &str, total: i32) -> Result<Vec<RoleCount>, ComposeError> {
        let first = self.counting.first().and_then(|keep| self.get(&keep.name));
        let first = first.ok_or_else(|| ComposeError::FewerPods { group: group.to_owned() })?;
        self.check_role(&first.role)?;
        Ok(vec![RoleCount { role: Arc::clone(&first.role), count: total }])
    }

    /// The pods of a role can be read.
    fn check_role(&self, role: &str) -> Result<(), ComposeError> {
        let first = self.roles.get(role).and_then(|role| role.counting.first());
        match first.and_then(|keep| self.get(&keep.name)).map(|member| &member.pod_set) {
            Some(Err(why)) => Err(ComposeError::Pod(why.clone())),
            _ => Ok(()),
        }
    }

    fn labels_to_copy(&self) -> Result<BTreeMap<String, String>, ComposeError> {
        let mut copied = BTreeMap::new();
        for (key, votes) in &self.labels {
            match votes.agreed() {
                Ok(Some((key, value))) => {
                    copied.insert(key.to_string(), value.clone());
                }
                Ok(None) => {}
                Err(_) => return Err(ComposeError::Labels { key: key.to_string() }),
            }
        }
        Ok(copied)
    }

    /// How the group compares with a Workload with these pod sets. Visits only pods that need an action.
    pub fn against(&self, pod_sets: &[RoleCount]) -> Against {
        let mut result = Against::default();
        let mut known = BTreeSet::new();
        for RoleCount { role, count: wanted } in pod_sets {
            known.insert(role);
            let Some(pods) = self.roles.get(role) else {
                result.absent = result.absent.saturating_add(*wanted);
                continue;
            };
            let wanted_here = usize::try_from(*wanted).unwrap_or(0);
            let (counting, inactive) = (pods.counting.len(), pods.inactive.len());
            result.matches |= wanted_here > 0;
            result.absent = result.absent.saturating_add(count(wanted_here.saturating_sub(counting)));
            result.excess.extend(self.without_successors(beyond(&pods.counting, *wanted), pods.leaving));
            let replaced = (inactive + counting).saturating_sub(wanted_here).min(inactive);
            // Pods without our finalizer are replaced first, and need nothing.
            let last = pods.held_inactive().rev().take(replaced.saturating_sub(pods.released));
            result.replaced.extend(last.map(|leave| Arc::clone(&leave.name)));
        }
        result.strangers = self.strangers(&known);
        result
    }

    /// Surplus pods without those that wait to take the place of pods of their role that are `leaving`.
    fn without_successors(&self, mut surplus: Vec<Arc<str>>, mut leaving: usize) -> Vec<Arc<str>> {
        surplus.retain(|name| {
            let succeeds = leaving > 0 && self.get(name).is_some_and(|member| member.gated);
            leaving -= usize::from(succeeds);
            !succeeds
        });
        surplus
    }

    /// Pods that run, or may at any time, and that a Workload with these pod sets is not for: of other roles, or more than it has.
    pub fn running_beyond(&self, pod_sets: &[RoleCount]) -> Vec<Arc<str>> {
        let known = pod_sets.iter().map(|set| &set.role).collect();
        let mut names = self.strangers(&known);
        for RoleCount { role, count } in pod_sets {
            let Some(pods) = self.roles.get(role) else { continue };
            if pods.ungated > usize::try_from(*count).unwrap_or(0) {
                names.extend(beyond(&pods.counting, *count).into_iter().filter(|name| self.is_free(name)));
            }
        }
        names
    }

    /// How many of these pod sets have no pod that counts.
    pub fn roles_without_pods(&self, pod_sets: &[RoleCount]) -> i32 {
        let has_none = |set: &&RoleCount| {
            set.count > 0 && self.roles.get(&set.role).is_none_or(|pods| pods.counting.is_empty())
        };
        i32::try_from(pod_sets.iter().filter(has_none).count()).unwrap_or(i32::MAX)
    }

    /// The pods that wait and were not set back, of other roles than these.
    pub fn waiting_strangers(&self, pod_sets: &[RoleCount]) -> impl Iterator<Item = &Member> {
        let is_other = move |role: &Arc<str>| pod_sets.iter().all(|set| set.role != *role);
        let others = self.roles.iter().filter(move |(role, _)| is_other(role));
        let others = others.flat_map(|(_, pods)| &pods.waiting);
        others.filter_map(|keep| self.members.get(&keep.name))
    }

    /// Pods of other roles than these that run, or may at any time.
    fn strangers(&self, known: &BTreeSet<&Arc<str>>) -> Vec<Arc<str>> {
        let others = self.roles.iter().filter(|(role, pods)| pods.free > 0 && !known.contains(role));
        let all = others.flat_map(|(_, pods)| {
            let counting = pods.counting.iter().map(|keep| &keep.name);
            counting.chain(pods.inactive.iter().map(|leave| &leave.name))
        });
        all.filter(|name| self.is_free(name)).cloned().collect()
    }

    /// Whether a pod runs, or may at any time, and is not being deleted.
    fn is_free(&self, name: &str) -> bool {
        self.get(name).is_some_and(|member| member.is_free() && member.deleted_by.is_none())
    }
}

impl Role {
    /// The pods that do not count and that our finalizer keeps, the last replaced first.
    fn held_inactive(&self) -> impl DoubleEndedIterator<Item = &Leave> {
        self.inactive.range(..Leave::first_released())
    }
}

/// The pods after the first `kept`.
fn beyond(pods: &BTreeSet<Keep>, kept: i32) -> Vec<Arc<str>> {
    let more = pods.len().saturating_sub(usize::try_from(kept).unwrap_or(0));
    let mut names: Vec<_> = pods.iter().rev().take(more).map(|keep| Arc::clone(&keep.name)).collect();
    names.reverse();
    names
}

fn count(pods: usize) -> i32 {
    saturated(i64::try_from(pods).unwrap_or(i64::MAX))
}
