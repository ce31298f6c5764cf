//! The data on servers of a described store, by the commands of the description.

use std::time::Duration;

use super::commands::output;
use super::{StoreDescription, Template};
use crate::backends::stored_data::{RunTraces, StoreSurvey, StoredData};
use crate::cluster::{BoxFuture, EndpointsReceiver};

pub struct DescribedData(pub &'static StoreDescription);

impl DescribedData {
    fn ask(
        &self,
        command: &'static Template,
        endpoints: &EndpointsReceiver,
        mark: &str,
    ) -> BoxFuture<'static, Result<String, String>> {
        let store = self.0;
        let line = command.fill(&store.of_servers(endpoints.borrow().nodes(), mark));
        Box::pin(async move { output(&line, store.folder()).await })
    }
}

impl StoredData for DescribedData {
    fn wipe(&self, _: EndpointsReceiver) -> BoxFuture<'static, Result<(), String>> {
        let why = format!("harness does not know how to empty {}", self.0.product);
        Box::pin(std::future::ready(Err(why)))
    }

    fn survey(&self, endpoints: EndpointsReceiver, _: Duration) -> BoxFuture<'static, Result<StoreSurvey, String>> {
        let Some(command) = &self.0.holds else {
            let survey = StoreSurvey {
                holds: Some("unknown data (the file has no `holds` in [data])".to_owned()),
                ..StoreSurvey::default()
            };
            return Box::pin(std::future::ready(Ok(survey)));
        };
        let asked = self.ask(command, &endpoints, "");
        Box::pin(async move {
            Ok(StoreSurvey {
                holds: Some(asked.await?).filter(|said| !said.is_empty()),
                ..StoreSurvey::default()
            })
        })
    }

    fn remove(&self, endpoints: EndpointsReceiver, traces: RunTraces) -> BoxFuture<'static, Result<u64, String>> {
        let Some(command) = &self.0.remove else {
            return Box::pin(std::future::ready(Ok(0)));
        };
        let asked = self.ask(command, &endpoints, &traces.mark);
        // their number is not known: the caller removes later ones by another call
        Box::pin(async move { asked.await.map(|_| 1) })
    }

    fn removes(&self) -> bool {
        self.0.remove.is_some()
    }
}
