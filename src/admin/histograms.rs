//! A histogram metric made from distributions that other modules keep.

use crate::histogram::Distribution;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt;

pub(super) type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
pub(super) struct Histograms(pub Vec<(Labels, Distribution)>);

impl EncodeMetric for Histograms {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(labels, read)| {
            let mut encoder = encoder.encode_family(labels)?;
            encoder.encode_histogram::<NoLabelSet>(read.sum, read.count(), &read.buckets, None)
        })
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
