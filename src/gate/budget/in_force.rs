//! Finds the configured budget against which spending from before a reload still counts. Pure.

use crate::config::Settings;
use crate::policy::{Budget, PaceKey};
use std::iter::once;

/// The budget in the settings that replaces `spent`, an earlier budget. `of`: the pace key or user that had it, followed by ` in USD` (its
/// currency) if it limits money. `None`: that key or user has no budget of this kind and period any more.
pub(super) fn in_force(settings: &Settings, of: &str, spent: Budget) -> Option<Budget> {
    let of = match spent.money {
        Some(money) => of.strip_suffix(&format!(" in {}", money.most.currency.as_str()))?,
        None => of,
    };
    let users = &settings.access.users;
    if let Some(user) = users.iter().find(|user| *of == *Budget::key_of_user(user.name.as_ref())) {
        return user.budget.and_then(|budget| like(budget, spent));
    }
    let key = PaceKey::from_text(of).filter(|key| key.is_by(settings.pace.key))?;
    let all = once(&settings.hosts).chain(users.iter().filter_map(|user| user.hosts.as_ref()));
    let Some(host) = key.host() else {
        // Several hosts share the key, and which ones is unknown: the budget is in force if any host still has it.
        return all.flat_map(|hosts| hosts.budgets()).filter_map(|budget| like(budget, spent)).find(|it| *it == spent);
    };
    let mut all = all.filter_map(|hosts| like(hosts.get(host).rules.manners.budget?, spent)).peekable();
    let first = all.peek().copied();
    all.find(|it| *it == spent).or(first)
}

/// The part of a budget that limits what `spent` limits: money, or requests and bytes. `None`: no such limit, or with another period or
/// currency.
fn like(budget: Budget, spent: Budget) -> Option<Budget> {
    let Some(was) = spent.money else {
        let is_counted = budget.per == spent.per && (budget.requests.is_some() || budget.bytes.is_some());
        return is_counted.then_some(Budget { money: None, ..budget });
    };
    let money = budget.money.filter(|it| it.per == was.per && it.most.currency == was.most.currency)?;
    Some(Budget { money: Some(money), per: money.per, ..Budget::default() })
}
