//! The Helm chart, rendered by Helm for several values, held against the schemas of Kubernetes, and its configuration
//! against leafhopper's own rules.

use std::{path::Path, process::Command};

use leafhopper::config::Config;
use serde_json::{Value, json};

use super::{checker, read, root, run};
use crate::harness::folder::Folder;

const CHART: &str = "deploy/helm/leafhopper";

/// What a chart has to be told.
const LEAST: &str = "image: { repository: r }\ndatabase: { secret: d }\n";

/// The oldest version that has native sidecars by default, and the newest that the checker knows.
const KUBERNETES: [&str; 2] = ["1.29.0", "1.37.0"];

/// One job of `helm.py`: to render, or to lint where there is no name.
fn job(chart: &str, name: Option<&str>, values: &str) -> Value {
    let mut job = json!({ "chart": chart, "values": values });
    if let Some(name) = name {
        job["name"] = name.into();
        job["namespace"] = "shop".into();
    }
    job
}

/// The answers, in order; `None` where Helm is not here.
fn helm(jobs: &[Value]) -> Option<Vec<Value>> {
    let hadolint = checker("hadolint")?;
    // The one Python that has the modules.
    let mut python = Command::new(hadolint.with_file_name("python"));
    let output = run(
        python.arg("tests/it/deploy/helm.py"),
        &Value::from(jobs).to_string(),
    );
    assert!(output.status.success(), "{output:#?}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// The text of all that was rendered.
fn text(answer: &Value) -> &str {
    answer["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer:#}"))
}

/// The rendered object of that kind.
fn object<'answer>(answer: &'answer Value, kind: &str) -> &'answer Value {
    let documents = answer["documents"]
        .as_array()
        .unwrap_or_else(|| panic!("{answer:#}"));
    let mut of_kind = documents.iter().filter(|document| document["kind"] == kind);
    of_kind
        .next()
        .unwrap_or_else(|| panic!("no {kind} in {}", text(answer)))
}

fn kinds(answer: &Value) -> Vec<&str> {
    let documents = answer["documents"]
        .as_array()
        .unwrap_or_else(|| panic!("{answer:#}"));
    let kinds = documents
        .iter()
        .map(|document| document["kind"].as_str().unwrap());
    kinds.collect()
}

/// The example's chart with its dependency in place, as `helm dependency build` puts it there.
fn example_app(folder: &Folder) -> String {
    let chart = folder.path().join("example-app");
    copy(&root().join("deploy/helm/example-app"), &chart);
    copy(&root().join(CHART), &chart.join("charts/leafhopper"));
    chart.to_str().unwrap().to_owned()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (entry, name) = entry
            .map(|entry| (entry.path(), entry.file_name()))
            .unwrap();
        if entry.is_dir() {
            copy(&entry, &to.join(name));
        } else {
            std::fs::copy(entry, to.join(name)).unwrap();
        }
    }
}

#[test]
fn the_manifests_are_what_the_charts_make_and_valid() {
    let folder = Folder::new();
    let values = read("deploy/kubernetes/values.yaml");
    let everything = format!(
        "{values}\nmonitor: {{ enabled: true }}\nrules: {{ enabled: true }}\ndashboard: {{ enabled: true }}\n\
         imagePullSecrets: [{{ name: pull }}]\nnodeSelector: {{ a: b }}\nserviceAccountName: s\n\
         tolerations: [{{ key: a, operator: Exists }}]\nenv: [{{ name: A, value: b }}]\npriorityClassName: p\n"
    );
    let jobs = [
        job(CHART, Some("leafhopper"), &values),
        job(&example_app(&folder), Some("shop"), ""),
        job(CHART, Some("other"), LEAST),
        job(CHART, Some("leafhopper"), &everything),
    ];
    let Some(answers) = helm(&jobs) else {
        return;
    };
    for (answer, name) in answers.iter().zip(["deployment", "sidecar"]) {
        let path = format!("deploy/kubernetes/{name}.yaml");
        let text = format!(
            "# Rendered from the charts of deploy/helm: LEAFHOPPER_UPDATE_MANIFESTS=1 cargo test --test it deploy::chart\n\
             # kubectl knows no hooks. Apply the Job first, each time by another name, and wait until it has migrated.\n{}",
            text(answer)
        );
        if std::env::var_os("LEAFHOPPER_UPDATE_MANIFESTS").is_some() {
            std::fs::write(root().join(&path), &text).unwrap();
        }
        assert!(
            read(&path) == text,
            "{path} is not what the chart makes; its head says how it is renewed"
        );
    }
    let files = answers.iter().enumerate();
    let files = files.map(|(number, answer)| folder.write(&format!("{number}.yaml"), text(answer)));
    let Some(program) = checker("kubernetes-validate") else {
        return;
    };
    let files: Vec<_> = files.collect();
    for version in KUBERNETES {
        let words = ["--strict", "--no-warn", "-k", version];
        let output = run(Command::new(&program).args(words).args(&files), "");
        assert!(output.status.success(), "{version}: {output:#?}");
    }
}

#[test]
fn pods_have_few_rights_time_to_stop_and_the_probes_that_fit() {
    let folder = Folder::new();
    let longer = format!("{LEAST}shutdownGraceSeconds: 300\n");
    let jobs = [
        job(CHART, Some("a"), LEAST),
        job(CHART, Some("a"), &longer),
        job(&example_app(&folder), Some("shop"), ""),
    ];
    let Some(answers) = helm(&jobs) else {
        return;
    };
    for (answer, grace) in answers.iter().zip([50, 325]) {
        let pod = &object(answer, "Deployment")["spec"]["template"]["spec"];
        assert_eq!(pod["terminationGracePeriodSeconds"], grace);
        assert!(text(answer).contains(&format!("shutdown_grace = \"{}s\"", grace - 25)));
        assert_eq!(
            pod["containers"][0]["readinessProbe"]["httpGet"]["path"],
            "/readyz"
        );
    }
    let own = &object(&answers[0], "Deployment")["spec"]["template"]["spec"]["containers"][0];
    let pod = &object(&answers[2], "Deployment")["spec"]["template"]["spec"];
    let beside = &pod["initContainers"][0];
    assert_eq!(beside["restartPolicy"], "Always", "it is a native sidecar");
    assert_eq!(
        beside["readinessProbe"],
        Value::Null,
        "the app's readiness is its own"
    );
    assert_eq!(
        pod["terminationGracePeriodSeconds"], 80,
        "the app's 30 s and the sidecar's 50"
    );
    let migrate = &object(&answers[0], "Job")["spec"]["template"]["spec"]["containers"][0];
    for container in [own, beside, migrate] {
        let context = &container["securityContext"];
        assert_eq!(context["runAsNonRoot"], true, "{container:#}");
        assert_eq!(context["readOnlyRootFilesystem"], true, "{container:#}");
        assert_eq!(context["allowPrivilegeEscalation"], false, "{container:#}");
        assert_eq!(
            context["capabilities"]["drop"],
            json!(["ALL"]),
            "{container:#}"
        );
    }
    for container in [own, beside] {
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/livez");
        assert_eq!(container["startupProbe"]["httpGet"]["path"], "/livez");
    }
    assert!(
        !kinds(&answers[2]).contains(&"Service"),
        "{:?}",
        kinds(&answers[2])
    );
}

/// A block of docs/deploy.md that begins so.
fn block(start: &str) -> String {
    let guide = read("docs/deploy.md");
    let (_, block) = guide.split_once(&format!("```{start}")).unwrap();
    block.split("```").next().unwrap().to_owned()
}

#[test]
fn the_guide_s_lines_for_a_sidecar_are_the_example_s() {
    let example = read("deploy/helm/example-app/templates/deployment.yaml");
    for line in block("yaml\n# the app's deployment\n").lines() {
        assert!(example.lines().any(|it| it == line), "{line}");
    }
}

#[test]
fn its_configuration_is_one() {
    let values = read("deploy/kubernetes/values.yaml");
    let more = "image: { repository: r }\ndatabase: { secret: d, directKey: direct }\nmode: sidecar\n\
                dispatch: |\n  lease = \"20s\"\nlisten: { hosts: [leaves.example.com], tokenSecret: t }\n";
    let guide = block("yaml\n# values.yaml\n");
    let jobs =
        [values.as_str(), LEAST, more, &guide].map(|values| job(CHART, Some("leafhopper"), values));
    let Some(answers) = helm(&jobs) else {
        return;
    };
    let folder = Folder::new();
    for secret in [
        "database/url",
        "database/direct_url",
        "token/token",
        "pay/token",
    ] {
        let file = folder.path().join(secret);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "postgres://u:a-long-password@h/d").unwrap();
    }
    for answer in &answers {
        let config = &object(answer, "ConfigMap")["data"]["leafhopper.toml"];
        let config = config.as_str().unwrap();
        let config = config.replace("/run/secrets/leafhopper", folder.path().to_str().unwrap());
        let config = config.replace("/var/lib/leafhopper", folder.path().to_str().unwrap());
        let parsed = Config::parse(&config, Path::new("leafhopper.toml"), &|_| None);
        let parsed = parsed.unwrap_or_else(|error| panic!("{error}\n{config}"));
        assert_eq!(parsed.listen.address.to_string(), "0.0.0.0:9187");
        assert_eq!(parsed.listen.hosts[0], "leafhopper");
        assert_eq!(parsed.dispatch.shutdown_grace.as_secs(), 25);
    }
}

#[test]
fn rules_and_dashboard_are_the_files_of_deploy() {
    let values = format!(
        "{LEAST}rules: {{ enabled: true, labels: {{ release: prometheus }} }}\ndashboard: {{ enabled: true }}\n\
         monitor: {{ enabled: true }}\n"
    );
    let Some(answers) = helm(&[job(CHART, Some("pay"), &values)]) else {
        return;
    };
    let rendered = text(&answers[0]);
    for (file, spaces) in [
        ("deploy/prometheus/leafhopper.rules.yml", "  "),
        ("deploy/grafana/leafhopper.json", "    "),
    ] {
        let lines: Vec<_> = read(file)
            .lines()
            .map(|line| format!("{spaces}{line}"))
            .collect();
        let block: String = lines
            .iter()
            .map(|line| format!("{}\n", line.trim_end()))
            .collect();
        assert!(rendered.contains(&block), "{file} is not all there");
    }
    // The rules count the instances of a job whose name begins so.
    let endpoint = &object(&answers[0], "ServiceMonitor")["spec"]["endpoints"][0];
    let job = json!([{ "targetLabel": "job", "replacement": "leafhopper-shop-pay" }]);
    assert_eq!(endpoint["relabelings"], job);
    let labels = &object(&answers[0], "PrometheusRule")["metadata"]["labels"];
    assert_eq!(labels["release"], "prometheus");
}

#[test]
fn values_that_make_no_sense_are_refused() {
    let wrong = [
        ("database: { secret: d }\n", "image.repository"),
        ("image: { repository: r }\n", "database.secret"),
        ("mode: beside\n", "mode"),
        ("replica: 3\n", "replica"),
        (
            "networkPolicy: { enabled: true }\n",
            "networkPolicy.database",
        ),
        (
            "mode: sidecar\nnetworkPolicy: { enabled: true, database: [{}] }\n",
            "app's chart",
        ),
        ("secrets: [{ name: database, secret: s }]\n", "secrets"),
    ];
    let whole = |values: &str| {
        if values.contains("image:") || values.starts_with("database:") {
            values.to_owned()
        } else {
            format!("{LEAST}{values}")
        }
    };
    let mut jobs: Vec<_> = wrong
        .iter()
        .map(|(values, _)| job(CHART, Some("leafhopper"), &whole(values)))
        .collect();
    jobs.push(job(CHART, None, LEAST));
    let Some(mut answers) = helm(&jobs) else {
        return;
    };
    let lint = answers.pop().unwrap();
    assert_eq!(lint["errors"], json!([]), "{lint:#}");
    for ((values, said), answer) in wrong.iter().zip(answers) {
        let refused = answer["refused"].as_str().unwrap_or_default();
        assert!(refused.contains(said), "{values}: {answer:#}");
    }
}
