//! interim
use crate::config::Egress;
use crate::policy::EgressReason;
use std::net::IpAddr;
pub struct Guard(Egress);
impl Guard {
    pub fn new(e: &Egress) -> Self { Guard(e.clone()) }
    pub fn screen_port(&self, port: u16) -> Result<(), EgressReason> {
        if self.0.ports.iter().any(|p| p.contains(port)) { Ok(()) } else { Err(EgressReason::Port(port)) }
    }
    pub fn screen(&self, address: IpAddr) -> Result<(), EgressReason> {
        if !address.is_loopback() || self.0.allow.iter().any(|n| n.0.contains(&address)) { Ok(()) } else {
            Err(EgressReason::Address { address, range: "Loopback".into(), source: "RFC 1122".into() }) }
    }
}
