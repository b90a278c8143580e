use std::net::IpAddr;
use std::str::FromStr;

/// Reverse proxies whose word about a client's address is believed. Default: none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<Network>);

impl TrustedProxies {
    /// Whether a connection from `address` is one of a listed proxy.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(address))
    }
}

impl FromStr for TrustedProxies {
    type Err = String;

    /// Addresses and networks with commas between them, such as `127.0.0.1, 10.0.0.0/8, fd00::/8`; empty for none.
    fn from_str(text: &str) -> Result<Self, String> {
        let entries = text.split(',').map(str::trim);
        let networks = match text.trim() {
            "" => Vec::new(),
            _ => entries
                .map(|entry| {
                    network(entry).map_err(|problem| {
                        format!(
                            "JOBDECK_TRUSTED_PROXIES must be IP addresses or networks with commas between them, such as \
                             127.0.0.1,10.0.0.0/8: {entry:?} {problem}"
                        )
                    })
                })
                .collect::<Result<_, _>>()?,
        };
        Ok(Self(networks))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    base: IpAddr,
    prefix: u32,
}

impl Network {
    fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.base.is_ipv4() && masked(address, self.prefix) == self.base
    }
}

fn network(text: &str) -> Result<Network, String> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let base: IpAddr = address.parse().map_err(|_| "is none".to_owned())?;
    let longest = if base.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        None => longest,
        Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => digits
            .parse()
            .ok()
            .filter(|prefix| (1..=longest).contains(prefix))
            // Everyone could then claim to be anyone.
            .ok_or_else(|| format!("has a prefix that is not from 1 to {longest}"))?,
        Some(_) => return Err("has a prefix that is no number".to_owned()),
    };
    let network = masked(base, prefix);
    if network != base {
        return Err(format!("is no network: the one it lies in is {network}/{prefix}"));
    }
    Ok(Network { base, prefix })
}

/// The first `prefix` bits of an address.
fn masked(address: IpAddr, prefix: u32) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4((address.to_bits() & u32::MAX.checked_shl(32 - prefix).unwrap_or(0)).into()),
        IpAddr::V6(address) => {
            IpAddr::V6((address.to_bits() & u128::MAX.checked_shl(128 - prefix).unwrap_or(0)).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_addresses_and_networks_are_known_and_no_others() {
        let proxies: TrustedProxies = " 127.0.0.1, 10.0.0.0/8 ,fd00::/8,192.0.2.128/25".parse().unwrap();
        for address in ["127.0.0.1", "::ffff:127.0.0.1", "10.1.2.3", "10.255.255.255", "fd12::1", "192.0.2.200"] {
            assert!(proxies.contains(address.parse().unwrap()), "{address}");
        }
        for address in ["127.0.0.2", "11.0.0.1", "::1", "fe80::1", "192.0.2.127", "::a00:1"] {
            assert!(!proxies.contains(address.parse().unwrap()), "{address}");
        }
        assert_eq!("".parse::<TrustedProxies>().unwrap(), TrustedProxies::default());
        assert!(!TrustedProxies::default().contains("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        for text in [
            "proxy.local",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.1/8",
            "::/0",
            "0.0.0.0/0",
            "10.0.0.1,,::1",
            ",",
        ] {
            let error = text.parse::<TrustedProxies>().unwrap_err();
            assert!(error.starts_with("JOBDECK_TRUSTED_PROXIES must be"), "{text}: {error}");
        }
        let error = "10.0.0.1/8".parse::<TrustedProxies>().unwrap_err();
        assert!(error.contains("10.0.0.0/8"), "{error}");
    }
}
