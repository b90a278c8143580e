//! Places counted per client address, so that no single client takes all of them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Places of each address. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Places {
    per_address: usize,
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A place, taken until it is dropped.
pub(crate) struct Place {
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: IpAddr,
}

impl Places {
    pub(crate) fn new(per_address: usize) -> Self {
        Self { per_address, taken: Arc::default() }
    }

    /// `None` when this address has taken all of its places.
    pub(crate) fn take(&self, address: IpAddr) -> Option<Place> {
        let address = network(address);
        let mut taken = lock(&self.taken);
        let n = taken.entry(address).or_default();
        if *n >= self.per_address {
            return None;
        }
        *n += 1;
        Some(Place { taken: self.taken.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        if let Some(n) = taken.get_mut(&self.address) {
            *n -= 1;
            if *n == 0 {
                taken.remove(&self.address);
            }
        }
    }
}

/// What one client can call its own: an IPv4 address, or the 64 bits that name a network in IPv6, below which anyone has
/// addresses without end.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address => address,
    }
}

fn lock(taken: &Mutex<HashMap<IpAddr, usize>>) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_places_and_gets_them_back() {
        let places = Places::new(2);
        let take = |address: &str| places.take(address.parse().unwrap());
        let (one, _two) = (take("192.0.2.1"), take("::ffff:192.0.2.1"));
        assert!(one.is_some() && take("192.0.2.1").is_none());
        assert!(take("192.0.2.2").is_some());
        drop(one);
        assert!(take("192.0.2.1").is_some());
        let _network = (take("2001:db8::1"), take("2001:db8::ffff:2"));
        assert!(take("2001:db8::3").is_none() && take("2001:db8:0:1::3").is_some());
        drop(_network);
        assert_eq!(lock(&places.taken).len(), 1, "nothing is kept about clients that have gone");
    }
}
