//! The counters of a group equal a recount.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_jobs::pods::{Group, MAX_OWNER_BYTES, Member, Phase, RoleCount, owner_bytes, owner_reference};

use super::{at, counts, created, deleted, member, phase, pod, role, total, with};

/// A pod somewhere in its life: of one of two roles, gated or not, held or not, bound or not, in any phase.
fn any_pod() -> impl Strategy<Value = Value> {
    let life = (0..4_usize, any::<bool>(), any::<bool>(), any::<bool>(), 0..4_i64);
    let says = (0..3_usize, 0..2_usize, 0..8_u8, 0..3_i64, 0..6_usize);
    (life, says, 0..8_usize).prop_map(|((at, gated, held, bound, age), (word, queue, odd, gone, label), name)| {
        let time = |seconds: i64| {
            (at_start() + SignedDuration::from_secs(seconds)).to_string()
        };
        let mut changes = vec![
            role(["driver", "worker", "other"][word]),
            total(if odd == 0 { "4" } else { "3" }),
            phase(["Pending", "Running", "Succeeded", "Failed"][at]),
            created(&time(age)),
            ("/metadata/labels/kueue.x-k8s.io~1queue-name", json!(if odd == 1 { ["x", "y"][queue] } else { "user-queue" })),
            ("/status/conditions", json!([{"type": "Ready", "status": if odd % 2 == 0 { "True" } else { "False" }},
                {"type": "ContainersReady", "status": "False", "reason": "PodFailed", "lastTransitionTime": time(20 + age)}])),
        ];
        if !gated {
            changes.push(("/spec/schedulingGates", Value::Null));
        }
        if !held {
            changes.push(("/metadata/finalizers", json!([])));
        }
        if bound {
            changes.push(("/spec/nodeName", json!("n")));
        }
        if gone > 0 {
            changes.push(deleted(&time(30 * gone)));
        }
        if odd == 2 {
            changes.push(("/metadata/annotations/kueue.x-k8s.io~1retriable-in-group", json!("false")));
        }
        if label < 2 {
            changes.push(("/metadata/labels/team", json!(["x", "y"][label])));
        }
        with(pod(&format!("p{name}")), &changes)
    })
}

fn at_start() -> Timestamp {
    at("2026-01-02T03:04:05Z")
}

/// What a group says, worked out by passes over all pods.
mod naive {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use jiff::Timestamp;
    use sluice_jobs::pods::{Against, Member, RoleCount};

    fn keep(pods: &mut [&Member]) {
        pods.sort_by(|a, b| {
            (b.held.cmp(&a.held))
                .then(a.gated.cmp(&b.gated))
                .then((a.created, &a.name).cmp(&(b.created, &b.name)))
        });
    }

    fn terminate(pods: &mut [&Member]) {
        let last = |member: &Member| match (member.failed_at, member.deleted_by) {
            (Some(failed), Some(deleted)) => failed.min(deleted),
            (one, other) => one.or(other).unwrap_or(Timestamp::MAX),
        };
        pods.sort_by(|a, b| {
            (b.held.cmp(&a.held))
                .then(last(b).cmp(&last(a)))
                .then((a.created, &a.name).cmp(&(b.created, &b.name)))
        });
    }

    pub fn against(pods: &[Member], pod_sets: &[RoleCount]) -> Against {
        let mut result = Against::default();
        for RoleCount { role, count } in pod_sets {
            let of_role: Vec<_> = pods.iter().filter(|pod| pod.role == *role).collect();
            let (mut active, mut inactive): (Vec<_>, Vec<_>) =
                of_role.into_iter().partition(|pod| pod.counts());
            let wanted = usize::try_from(*count).unwrap();
            result.matches |= active.len() + inactive.len() > 0;
            result.absent += i32::try_from(wanted.saturating_sub(active.len())).unwrap();
            keep(&mut active);
            terminate(&mut inactive);
            let replaced = (inactive.len() + active.len()).saturating_sub(wanted).min(inactive.len());
            let mut gone = inactive.split_off(inactive.len() - replaced);
            gone.reverse();
            result.replaced.extend(gone.iter().filter(|pod| pod.held).map(|pod| Arc::clone(&pod.name)));
            let mut leaving = active.iter().filter(|pod| pod.deleted_by.is_some() && !pod.ended()).count();
            for pod in active.iter().skip(wanted) {
                if pod.gated && leaving > 0 {
                    leaving -= 1;
                } else {
                    result.excess.push(Arc::clone(&pod.name));
                }
            }
        }
        let free = pods.iter().filter(|pod| pod.is_free() && pod.deleted_by.is_none());
        let strangers = free.filter(|pod| pod_sets.iter().all(|set| set.role != pod.role));
        result.strangers = strangers.map(|pod| Arc::clone(&pod.name)).collect();
        result.strangers.sort();
        result
    }

    /// The pod sets, or that there is something wrong.
    pub fn pod_sets(pods: &[Member]) -> Option<(Vec<RoleCount>, Vec<Arc<str>>)> {
        let mut counting: Vec<_> = pods.iter().filter(|pod| pod.counts()).collect();
        let first = counting.first()?;
        let total = first.total_count.clone().unwrap();
        let agrees =
            |pod: &&&Member| pod.total_count == first.total_count && pod.queue_name == first.queue_name;
        let label = |pod: &Member| pod.pod_set.as_ref().unwrap().scheduling.labels.get("team").cloned();
        let mut teams: Vec<_> = counting.iter().filter_map(|pod| label(pod)).collect();
        teams.sort();
        teams.dedup();
        let total = usize::try_from(total).unwrap();
        if !counting.iter().all(|pod| agrees(&pod)) || teams.len() > 1 || counting.len() < total {
            return None;
        }
        keep(&mut counting);
        let excess = counting.split_off(total).into_iter().map(|pod| Arc::clone(&pod.name)).collect();
        let mut roles: BTreeMap<Arc<str>, i32> = BTreeMap::new();
        for pod in counting {
            *roles.entry(Arc::clone(&pod.role)).or_default() += 1;
        }
        Some((roles.into_iter().map(|(role, count)| RoleCount { role, count }).collect(), excess))
    }
}

proptest! {
    /// However pods come, change and go, the group says what a pass over all of them says, and what one made of them in another order says.
    #[test]
    fn what_is_counted_is_what_is_there(steps in proptest::collection::vec((any_pod(), any::<bool>()), 1..40)) {
        let mut group = Group::new(&["team".to_owned()]);
        let mut pods: BTreeMap<Arc<str>, Member> = BTreeMap::new();
        for (pod, goes) in steps {
            let member = member(&pod);
            if goes && pods.contains_key(&member.name) {
                pods.remove(&member.name);
                prop_assert!(group.remove(&member.name).is_some());
            } else {
                pods.insert(Arc::clone(&member.name), member.clone());
                group.insert(member);
            }
        }
        let all: Vec<_> = pods.values().cloned().collect();
        let mut again = Group::new(&["team".to_owned()]);
        for member in all.iter().rev() {
            again.insert(member.clone());
        }
        prop_assert_eq!(&group, &again);
        prop_assert_eq!(&group, &group.recounted());

        let composed = group.compose("g").ok().map(|composed| (composed.pod_sets, composed.excess));
        prop_assert_eq!(composed, naive::pod_sets(&all));
        for pod_sets in [counts(&[("driver", 2), ("worker", 1)]), counts(&[("worker", 3)]), counts(&[("none", 1)])] {
            let mut against = group.against(&pod_sets);
            against.strangers.sort();
            prop_assert_eq!(against, naive::against(&all, &pod_sets));
            let empty = |set: &&RoleCount| !all.iter().any(|pod| pod.counts() && pod.role == set.role);
            let empty = pod_sets.iter().filter(empty).count();
            prop_assert_eq!(group.roles_without_pods(&pod_sets), i32::try_from(empty).unwrap());
        }
        let succeeded = all.iter().filter(|pod| pod.phase == Phase::Succeeded).count();
        let unended = all.iter().any(|pod| !pod.ended());
        let unretriable = all.iter().any(|pod| pod.unretriable);
        if let Some(total) = group.total_count() {
            let free = all.iter().any(|pod| pod.is_free() && pod.deleted_by.is_none());
            let over = !free && (i32::try_from(succeeded).unwrap() == total || (!unended && unretriable));
            prop_assert_eq!(group.finished().is_some(), over);
        }
        for seconds in [0, 30, 45, 60, 90] {
            let now = at_start() + SignedDuration::from_secs(seconds);
            for fast in [false, true] {
                let runs = |pod: &&Member| pod.active_until(fast).is_some_and(|until| until.is_none_or(|until| until > now));
                prop_assert_eq!(group.active_until(now, fast).is_some(), all.iter().any(|pod| runs(&pod)));
            }
        }
        let free = all.iter().filter(|pod| pod.is_free() && pod.deleted_by.is_none()).map(|pod| &pod.name);
        prop_assert!(group.free().map(|pod| &pod.name).eq(free));
        let held = all.iter().filter(|pod| pod.held).map(|pod| &pod.name);
        prop_assert!(group.held().map(|pod| &pod.name).eq(held));
        prop_assert_eq!(group.is_leaving(), all.iter().all(|pod| pod.deleted_by.is_some()));
        let roles: std::collections::BTreeSet<_> = all.iter().filter(|pod| pod.counts()).map(|pod| &pod.role).collect();
        prop_assert!(group.speakers().map(|pod| &pod.role).eq(roles));
    }
}

/// The pods of a group that have their templates, after these came one by one.
fn with_templates(pods: &[Value]) -> Vec<String> {
    let mut group = Group::new(&[]);
    for pod in pods {
        let pod = member(pod);
        let name = Arc::clone(&pod.name);
        group.insert(pod);
        group.drop_needless_templates(&name);
    }
    let has = |member: &&Member| member.has_template();
    group.members().filter(has).map(|member| member.name.to_string()).collect()
}

#[test]
fn one_template_is_kept_for_each_role_and_none_for_more_roles_than_a_workload_has() {
    let made = |name: &str, of: &str, day: usize| {
        with(pod(name), &[role(of), total("9"), created(&format!("2026-01-{day:02}T00:00:00Z"))])
    };
    assert_eq!(with_templates(&[made("a", "x", 1), made("b", "x", 2), made("c", "y", 3)]), ["a", "c"]);
    // The oldest pod stands for its role, whenever it is seen.
    assert_eq!(with_templates(&[made("b", "x", 2), made("c", "x", 3), made("a", "x", 1)]), ["a"]);
    // One that will never run stands for none.
    let failed = with(made("a", "x", 1), &[phase("Failed")]);
    assert_eq!(with_templates(&[failed, made("b", "x", 2)]), ["b"]);
    assert_eq!(with_templates(&[made("a", "x", 1), with(made("a", "x", 1), &[phase("Failed")])]), [""; 0]);
    let of_many = |at: usize| with(made(&format!("p{at:02}"), &format!("r{at}"), at), &[total("28")]);
    let many: Vec<_> = (1..=28).map(of_many).collect();
    assert_eq!(with_templates(&many).len(), 18);
    // Roles of pods that will never run do not count: what the Workload needs is kept, however often it is read.
    let failed =
        (1..=28).map(|at| with(made(&format!("f{at:02}"), &format!("r{at}"), at), &[phase("Failed")]));
    let whole = (0..9).map(|at| made(&format!("p{at}"), "x", 1));
    assert_eq!(with_templates(&failed.chain(whole).chain([made("p0", "x", 1)]).collect::<Vec<_>>()), ["p0"]);
}

#[test]
fn a_group_of_more_pods_than_a_workload_has_owners_is_refused_before_they_are_all_made() {
    let why = |length: usize, count: usize| {
        let mut group = Group::new(&[]);
        group.insert(member(&with(pod(&"a".repeat(length)), &[total(&count.to_string())])));
        group.compose("g").unwrap_err().to_string()
    };
    let fewer = "'g' group has fewer runnable pods than expected";
    for (length, most) in [(20, 6_316), (63, 5_017), (253, 2_628)] {
        assert_eq!(most, MAX_OWNER_BYTES / owner_bytes(&"a".repeat(length)));
        assert_eq!(why(length, most), fewer);
        let refused = format!("pod group can't include {} pods with such names: as owners", most + 1);
        assert!(why(length, most + 1).starts_with(&refused), "{}", why(length, most + 1));
    }
    let most = usize::try_from(i32::MAX).unwrap();
    assert!(why(253, most).starts_with("pod group can't include 2147483647 pods"));
}

#[test]
fn pods_beyond_the_number_of_a_group_are_no_owners_to_be_refused_for() {
    let mut group = Group::new(&[]);
    let name = |at: usize| format!("{at:0>253}");
    for at in 0..3_000 {
        group.insert(member(&with(pod(&name(at)), &[total("2")])));
    }
    let composed = group.compose("g").unwrap();
    assert_eq!((composed.pod_sets[0].count, composed.excess.len()), (2, 2_998));
    // Whatever is not there does not count.
    for at in 1..3_000 {
        group.remove(&name(at));
    }
    group.insert(member(&with(pod("short"), &[total("2")])));
    assert_eq!(group.compose("g").map(|composed| composed.pod_sets[0].count), Ok(2));
}

#[test]
fn owners_that_do_not_fit_are_those_that_do_not_count_and_then_the_last() {
    let name = |at: usize| format!("{at:0>253}");
    let mut group = Group::new(&[]);
    for at in 0..2_700 {
        let life = if at < 100 { "Failed" } else { "Pending" };
        group.insert(member(&with(pod(&name(at)), &[phase(life)])));
    }
    let owner = |at: usize| owner_reference(group.get(&name(at)).unwrap());
    let there: Vec<_> = (0..2_600).map(owner).collect();
    // As long as all fit, they stay as they are.
    let all = group.owners_with(&there, vec![owner(2_600)]);
    assert_eq!((all.len(), &all[0], &all[2_600]), (2_601, &owner(0), &owner(2_600)));
    let fitting = group.owners_with(&there, (2_600..2_700).map(owner).collect());
    let expected: Vec<_> = (100..2_700).chain(0..28).map(owner).collect();
    assert_eq!(fitting, expected);
    let live: Vec<_> = (100..2_700).map(owner).collect();
    let gone = |at: usize| OwnerReference { uid: format!("former-{at}"), ..owner(at) };
    let with_gone: Vec<_> = (100..200).map(gone).chain(live.clone()).collect();
    let bytes: usize =
        group.owners_with(&with_gone, Vec::new()).iter().map(|owner| owner_bytes(&owner.name)).sum();
    assert!(bytes <= MAX_OWNER_BYTES);
    assert_eq!(group.owners_with(&with_gone, Vec::new())[..2_600], live);
    // One more that counts than fit: the last is left out.
    for at in 2_700..2_800 {
        group.insert(member(&pod(&name(at))));
    }
    let owner = |at: usize| owner_reference(group.get(&name(at)).unwrap());
    let left = group.owners_with(&live, (2_700..2_800).map(owner).collect());
    assert_eq!(left, (100..2_728).map(owner).collect::<Vec<_>>());
}

#[test]
fn what_users_write_without_end_is_cut_where_it_is_kept_or_shown() {
    let long = "x".repeat(100_000);
    let member = member(&with(pod("a"), &[total(&long), ("/status", json!({"message": long}))]));
    assert!(member.message.len() <= 1024 && member.total_count.unwrap_err().len() < 256);
}
