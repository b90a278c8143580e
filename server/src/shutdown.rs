//! One signal that everything in the process stops on.

use tokio::sync::watch;

/// Tells that the process is stopping. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// Starts the stop. Dropping it starts the stop as well.
#[derive(Debug)]
pub struct ShutdownTrigger(watch::Sender<bool>);

impl Shutdown {
    /// A signal and what sets it off.
    pub fn channel() -> (ShutdownTrigger, Self) {
        let (sender, receiver) = watch::channel(false);
        (ShutdownTrigger(sender), Self(receiver))
    }

    /// Whether the stop has begun.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Waits until the stop begins.
    pub async fn requested(&self) {
        // An error means that the trigger is gone.
        let _ = self.0.clone().wait_for(|stopping| *stopping).await;
    }
}

impl ShutdownTrigger {
    /// Starts the stop. Repeating it changes nothing.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stop_reaches_every_clone() {
        let (trigger, shutdown) = Shutdown::channel();
        let other = shutdown.clone();
        assert!(!shutdown.is_requested());
        trigger.stop();
        other.requested().await;
        assert!(shutdown.is_requested());
    }

    #[tokio::test]
    async fn dropping_the_trigger_stops() {
        let (trigger, shutdown) = Shutdown::channel();
        drop(trigger);
        shutdown.requested().await;
        assert!(shutdown.is_requested());
    }
}
