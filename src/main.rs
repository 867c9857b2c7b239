//! The `leafhopper` program.
use leafhopper::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let file = args
        .iter()
        .position(|a| a == "--config")
        .map(|i| std::path::PathBuf::from(&args[i + 1]))
        .unwrap();
    let f = std::env::var("RUST_LOG").unwrap_or("info".into());
    let sub = tracing_subscriber::fmt()
        .with_env_filter(f)
        .with_writer(std::io::stderr);
    if args.iter().any(|a| a == "json") {
        sub.json().init()
    } else {
        sub.init()
    }
    let config = match config::Config::load(&file, &config::process_env) {
        Ok(c) => c,
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(1)
        }
    };
    let rt = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let code = rt.block_on(async {
        match args[1].as_str() {
            "migrate" => {
                for m in store::migrate::migrate(
                    &store::connect::Connect::parse(&config.database.url).unwrap(),
                )
                .await
                .unwrap()
                {
                    println!("applied {}", m.name)
                }
                0
            }
            _ => match app::run(
                app::Setup {
                    config,
                    file,
                    migrate: false,
                },
                &config::process_env,
            )
            .await
            {
                Ok(app::Ended::Clean) => 0,
                Ok(_) => 1,
                Err(e) => {
                    eprintln!("{e:#}");
                    1
                }
            },
        }
    });
    std::process::exit(code)
}
