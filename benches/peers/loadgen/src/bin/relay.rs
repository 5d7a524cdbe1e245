//! Hands bytes on between each client and the origin, unread: what the system takes for a proxy of any kind, and so the least
//! that a request can cost. Two threads, each with its connections, as the cheapest proxies have it.
//!
//!     relay LISTEN ORIGIN

use std::net::SocketAddr;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::task::LocalSet;

fn main() {
    let mut words = std::env::args().skip(1).map(|word| word.parse().expect("an address and its port"));
    let (Some(listen), Some(origin)) = (words.next(), words.next()) else { panic!("relay LISTEN ORIGIN") };
    let threads = [(); 2].map(|()| std::thread::spawn(move || serve(listen, origin)));
    for thread in threads {
        thread.join().expect("a thread that serves");
    }
}

fn serve(listen: SocketAddr, origin: SocketAddr) {
    let runtime = Builder::new_current_thread().enable_io().build().expect("a runtime");
    let serving = async {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).and_then(|()| socket.set_reuseport(true)).expect("a shared port");
        socket.bind(listen).expect("to listen");
        let listener = socket.listen(1024).expect("to listen");
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::task::spawn_local(async move {
                let Ok(mut server) = TcpStream::connect(origin).await else { return };
                let _ = client.set_nodelay(true);
                let _ = server.set_nodelay(true);
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    };
    LocalSet::new().block_on(&runtime, serving);
}
