mod bodies;
mod requests;
mod responses;
