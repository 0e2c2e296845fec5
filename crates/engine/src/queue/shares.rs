//! Rates that several servers share. A server takes a share of a rate before it uses any of it, and gives back what it does not need.
//! One small record has what all servers used and hold; the host keeps it in the store. So the limit holds over all servers, a server
//! that is alone can use all of it, and a lost server takes no more than its share along.

use std::collections::BTreeMap;

use longhaul_protocol::Timestamp;
use serde::{Deserialize, Serialize};

/// Times of uses are rounded up to this part of the window. So no window has more uses than allowed, and room comes late by at most
/// a 50th of the window.
const BUCKETS: i64 = 50;

/// Entries in a record. One window needs about as many as it has buckets; more come from windows of different lengths.
const ENTRIES_MAX: usize = 256;

/// A share may be used for this long unless its holder confirms it. Far longer than the store takes to answer, because a share that
/// arrives too late is of no use.
const HELD_SECONDS: u64 = 10;

/// A share is at most this part of the limit: small, because what an idle server holds is lost to the others.
const PART_OF_LIMIT: u64 = 20;

/// A share is at most this part of what is free: smaller and smaller as the limit comes near.
const PART_OF_FREE: u64 = 4;

/// How often something may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RateLimit {
    pub max: u64,
    pub window_seconds: u32,
}

impl RateLimit {
    /// Returns how long an unused share is kept, and after which a server asks again for what others hold: a 50th of the window, but no
    /// longer than a second, and not so short that it burdens the store.
    pub fn pause_millis(&self) -> u64 {
        (u64::from(self.window_seconds) * 1000 / BUCKETS.unsigned_abs()).clamp(20, 1000)
    }

    fn window_micros(&self) -> i64 {
        i64::from(self.window_seconds) * 1_000_000
    }

    /// Returns the end of the bucket of a time.
    fn rounded_up(&self, at: Timestamp) -> i64 {
        let width = (self.window_micros() / BUCKETS).max(1);
        at.as_micros().saturating_add(width - 1).div_euclid(width) * width
    }

    /// Returns the size of the next share.
    fn share(&self, free: u64) -> u64 {
        let part = (self.max / PART_OF_LIMIT).min(free / PART_OF_FREE);
        part.max(1).min(free)
    }
}

/// Uses by time, oldest first: microseconds, and how many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uses(Vec<(i64, u64)>);

impl Uses {
    /// Counts one use.
    pub fn count(&mut self, limit: RateLimit, at: Timestamp) {
        let at = limit.rounded_up(at);
        match self.0.last_mut() {
            // Times never step back here, even when the clock does.
            Some(last) if last.0 >= at => last.1 += 1,
            _ => self.0.push((at, 1)),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how many uses are in the window now.
    fn within(&self, limit: RateLimit, now: Timestamp) -> u64 {
        let from = now.as_micros() - limit.window_micros();
        let newest_first = self.0.iter().rev();
        let counted = newest_first.take_while(|(at, _)| *at > from);
        counted.map(|(_, uses)| uses).sum()
    }

    fn add(&mut self, other: &Self) {
        for (at, uses) in &other.0 {
            match self.0.binary_search_by_key(at, |(at, _)| *at) {
                Ok(place) => self.0[place].1 += uses,
                Err(place) => self.0.insert(place, (*at, *uses)),
            }
        }
        while self.0.len() > ENTRIES_MAX {
            self.join_closest();
        }
    }

    /// Joins the two entries that are closest together, at the later time.
    fn join_closest(&mut self) {
        let gaps = self.0.windows(2).map(|pair| pair[1].0 - pair[0].0);
        let closest = gaps.enumerate().min_by_key(|(_, gap)| *gap);
        if let Some((place, _)) = closest {
            let (_, uses) = self.0.remove(place);
            self.0[place].1 += uses;
        }
    }
}

/// What one server holds of a rate.
#[derive(Clone, Debug, Default)]
pub struct Share {
    /// May be used, with what is on its way to be.
    left: u64,
    /// Uses that the record does not have yet.
    uses: Uses,
    held_until: Timestamp,
}

impl Share {
    /// Returns how many uses may begin now, if `on_the_way` have begun and are not counted yet.
    pub fn available(&self, on_the_way: u64, now: Timestamp) -> u64 {
        if now < self.held_until {
            self.left.saturating_sub(on_the_way)
        } else {
            0
        }
    }

    /// Counts one use.
    pub fn count(&mut self, limit: RateLimit, now: Timestamp) {
        self.left = self.left.saturating_sub(1);
        self.uses.count(limit, now);
    }

    /// Returns whether the record must hear of it: something is held, or was used.
    pub fn is_open(&self) -> bool {
        self.left > 0 || !self.uses.is_empty()
    }

    /// Begins an exchange with the record. Without a wish for more, only what is on its way is kept.
    pub fn begin(&mut self, wish: Wish, on_the_way: u64, now: Timestamp) -> Settlement {
        if wish == Wish::GiveBack || now >= self.held_until {
            self.left = self.left.min(on_the_way);
        }
        Settlement {
            uses: std::mem::take(&mut self.uses),
            keeps: self.left,
            wish,
        }
    }

    /// Applies the outcome of an exchange. Uses since it began are counted for the next one.
    pub fn end(&mut self, outcome: &Exchanged) {
        self.left += outcome.granted;
        self.held_until = outcome.held_until;
    }

    /// Undoes the beginning of an exchange that failed. If it was stored after all, its uses count twice, which is the safe side.
    pub fn fail(&mut self, settlement: &Settlement) {
        self.uses.add(&settlement.uses);
    }
}

/// What a server wants of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    More,
    GiveBack,
}

/// What a server brings to an exchange.
#[derive(Clone, Debug)]
pub struct Settlement {
    uses: Uses,
    /// The part of its share that it keeps.
    keeps: u64,
    wish: Wish,
}

impl Settlement {
    /// Returns whether it changes the record even if nothing is granted.
    pub fn has_news(&self) -> bool {
        !self.uses.is_empty() || self.wish == Wish::GiveBack
    }
}

/// The outcome of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    pub granted: u64,
    pub held_until: Timestamp,
    /// When to ask again, if nothing was granted.
    pub room_at: Timestamp,
}

/// What all servers used and hold of one rate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedRate {
    used: Uses,
    /// The longest window that counts these uses.
    window_seconds: u32,
    /// By holder.
    held: BTreeMap<String, Held>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    count: u64,
    until: Timestamp,
}

impl SharedRate {
    /// Settles what a server used, and grants it a share if it wants one and something is free.
    pub fn exchange(
        &mut self,
        holder: &str,
        limit: RateLimit,
        settlement: &Settlement,
        now: Timestamp,
    ) -> Exchanged {
        self.window_seconds = self.window_seconds.max(limit.window_seconds);
        self.held.remove(holder);
        self.used.add(&settlement.uses);
        self.forget(now);
        let counted = self.counted(limit, now) + settlement.keeps;
        let free = limit.max.saturating_sub(counted);
        let granted = match settlement.wish {
            Wish::More => limit.share(free),
            Wish::GiveBack => 0,
        };
        let room_at = self.room_at(limit, settlement.keeps, now);
        let held_until = now.plus_seconds(HELD_SECONDS);
        let count = settlement.keeps + granted;
        if count > 0 {
            let until = held_until;
            self.held.insert(holder.to_owned(), Held { count, until });
        }
        Exchanged {
            granted,
            held_until,
            room_at,
        }
    }

    /// Returns whether nothing counts any more, so that the record is not needed.
    pub fn is_over(&mut self, now: Timestamp) -> bool {
        self.forget(now);
        self.used.is_empty() && self.held.is_empty()
    }

    /// Removes what no window counts any more.
    fn forget(&mut self, now: Timestamp) {
        let window = u64::from(self.window_seconds);
        let from = now.minus_seconds(window).as_micros();
        self.used.0.retain(|(at, _)| *at > from);
        // A lost server may have used its share until the end.
        self.held
            .retain(|_, held| held.until.plus_seconds(window) > now);
    }

    /// Returns what counts against a limit: uses in the window, and what is held.
    fn counted(&self, limit: RateLimit, now: Timestamp) -> u64 {
        let window = u64::from(limit.window_seconds);
        let held = self.held.values();
        let held = held.filter(|held| held.until.plus_seconds(window) > now);
        self.used.within(limit, now) + held.map(|held| held.count).sum::<u64>()
    }

    /// Returns when something may be free, if nothing is now. Others may give back what they hold at any time.
    fn room_at(&self, limit: RateLimit, keeps: u64, now: Timestamp) -> Timestamp {
        let soon = now.plus_millis(limit.pause_millis());
        if self.held.values().any(|held| held.until > now) {
            return soon;
        }
        let window = u64::from(limit.window_seconds);
        let used = self.used.0.iter();
        let used = used.map(|(at, uses)| (Timestamp::from_micros(*at), *uses));
        let held = self.held.values().map(|held| (held.until, held.count));
        let mut leaves: Vec<(Timestamp, u64)> = used
            .chain(held)
            .map(|(at, count)| (at.plus_seconds(window), count))
            .filter(|(at, _)| *at > now)
            .collect();
        leaves.sort_unstable();
        let mut counted = self.counted(limit, now) + keeps;
        for (at, count) in leaves {
            counted = counted.saturating_sub(count);
            if counted < limit.max {
                return at;
            }
        }
        soon
    }
}

#[cfg(test)]
mod tests;
