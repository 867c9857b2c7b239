//! Names: dead addresses, and those that lead into one's own network.

use std::{collections::VecDeque, io, net::IpAddr, sync::Mutex};

use super::{
    receiver::{Step::*, black_hole_at},
    tls::OK,
    *,
};
use crate::leaf::resolve::Lookup;

/// Public by its number, and given to nobody: it leads nowhere.
const NOWHERE: &str = "2d00::1";

/// A name service that gives these answers, one after another; an empty one is none.
fn answers(answers: &[&[&str]]) -> Lookup {
    let parse = |address: &&str| (address.parse::<IpAddr>().unwrap(), 0).into();
    let each = answers.iter().map(|one| one.iter().map(parse).collect());
    let left: Mutex<VecDeque<Vec<_>>> = Mutex::new(each.collect());
    Arc::new(move |name| {
        let next = left.lock().unwrap().pop_front();
        let found = next.ok_or_else(|| io::Error::other(format!("asked for {name} once more")));
        Box::pin(async move { found })
    })
}

fn looking_up(receiver: &Receiver, private: PrivateAddresses, lookup: Lookup) -> LeafClient {
    let leaf = Leaf {
        connect_timeout: SHORT,
        private_addresses: private,
        ..leaf(&format!("http://leaf.example:{}", receiver.address.port()))
    };
    LeafClient::looking_up(&leaf, lookup).unwrap()
}

#[tokio::test]
async fn a_dead_address_that_comes_first_does_not_keep_a_call_from_the_next() {
    let receiver = Receiver::start(&[&[Read, Write(OK)], &[Read, Write(OK)]]).await;
    for dead in ["127.0.0.2", "::1"] {
        let mut address = receiver.address;
        address.set_ip(dead.parse().unwrap());
        if std::net::TcpListener::bind(address).is_err() {
            // Without IPv6 there is none of it to wait for.
            continue;
        }
        let (_, _hole) = black_hole_at(address).await;
        let lookup = answers(&[&[dead, "127.0.0.1"]]);
        let client = looking_up(&receiver, PrivateAddresses::Allow, lookup);
        let evidence = send(&client, &post("{}")).await;
        assert_eq!(word(&evidence), "answered 200 ok", "{dead}: {evidence:?}");
    }
}

#[tokio::test]
async fn calls_follow_a_name_that_moves_as_soon_as_the_connections_have_grown_old() {
    let twice: &[Step] = &[Read, Write(OK), Read, Write(OK), Hang];
    let from = Receiver::start(&[twice]).await;
    let mut address = from.address;
    address.set_ip("127.0.0.2".parse().unwrap());
    let to = Receiver::start_at(address, &[twice]).await;
    let lookup = answers(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let mut client = looking_up(&from, PrivateAddresses::Allow, lookup);
    let seen = async |client: &LeafClient| {
        let evidence = send(client, &post("{}")).await;
        assert_eq!(word(&evidence), "answered 200 ok", "{evidence:?}");
        (from.requests().len(), to.requests().len())
    };
    // The name has moved after the first; its connection is good all the same.
    assert_eq!(seen(&client).await, (1, 0));
    assert_eq!(seen(&client).await, (2, 0));
    client.age_max = Duration::ZERO;
    assert_eq!(seen(&client).await, (2, 1));
    client.age_max = LONG;
    assert_eq!(seen(&client).await, (2, 2));
    assert_eq!((from.connections(), to.connections()), (1, 1));
}

#[tokio::test]
async fn private_addresses_are_refused_at_each_connection() {
    let receiver = Receiver::start(&[&[Read, Write(OK)]]).await;
    for inside in [
        "127.0.0.1",
        "::ffff:127.0.0.1",
        "64:ff9b::127.0.0.1",
        "10.0.0.1",
        "fe80::1",
    ] {
        // The name leads to a public address first, and into the own network from then on.
        let lookup = answers(&[&[NOWHERE], &[inside], &[inside]]);
        let client = looking_up(&receiver, PrivateAddresses::Refuse, lookup);
        let before = format!("{:?}", send(&client, &post("{}")).await);
        assert!(
            before.contains("Unconnected") && !before.contains("leads to"),
            "{before}"
        );
        let after = send(&client, &post("{}")).await;
        assert_eq!(word(&after), "unconnected", "{after:?}");
        let inside: IpAddr = inside.parse().unwrap();
        let said = format!("leaf.example leads to {inside}, which is no public address");
        assert!(format!("{after:?}").contains(&said), "{after:?}");
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn of_several_addresses_the_private_ones_are_left_out() {
    let receiver = Receiver::start(&[&[Read, Write(OK)]]).await;
    let lookup = answers(&[&["127.0.0.1", NOWHERE]]);
    let client = looking_up(&receiver, PrivateAddresses::Refuse, lookup);
    let evidence = send(&client, &post("{}")).await;
    assert_eq!(word(&evidence), "unconnected", "{evidence:?}");
    assert_eq!(receiver.connections(), 0);
}
